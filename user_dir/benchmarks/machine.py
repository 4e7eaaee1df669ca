"""The metadata of benchmark reports, and writing them."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import msgspec
import torch

from ..checkout import IN_CHECKOUT, ROOT
from ..io import write_text

PACKAGES = ("torch", "fairseq", "fairseq-fixed", "entmax", "triton", "adasplash", "numpy")


def record(benchmark: str, device: torch.device, seed: int) -> dict:
    """The metadata of a report: benchmark, date, command, commit, machine and versions."""
    return {
        "benchmark": benchmark,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["python", *sys.argv]),
        "commit": _commit(),
        "seed": seed,
        "machine": _machine(device),
        "versions": {"python": platform.python_version(), **_versions()},
    }


def heading(report: dict) -> str:
    """The metadata of a report as text."""
    machine, versions = report["machine"], report["versions"]
    place = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} of {machine['cores']} cores"
    if machine["device"] == "cpu":
        place += f", {machine['capability']}"
    return f"{place}; torch {versions['torch']}; {report['date']}; commit {report['commit'] or 'unknown'}"


def write_measurements(path: Path, report: dict) -> None:
    """Write a report as JSON, which has null for NaN; raises UserError if that fails."""
    write_text(path, msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n")


def finish_part(path: Path, report: dict, tables: str) -> None:
    """Write all measurements so far, then print the tables of the last part."""
    write_measurements(path, report)
    print(tables + "\n", flush=True)


def _machine(device: torch.device) -> dict:
    found = {
        "device": device.type,
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
    }
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
        found["gpu_capability"] = ".".join(map(str, torch.cuda.get_device_capability(device)))
        found["cuda"] = torch.version.cuda
    return found


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _commit() -> str | None:
    """The commit of the working tree, marked if files differ; None outside a repository."""
    if not IN_CHECKOUT:  # an installed package, possibly inside another repository
        return None
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
