"""The script for GPUs, rehearsed without one."""

import json
import sys

import pytest
import torch
from commands import refused, script
from helpers import script_module

from user_dir.benchmarks.gpu_sections import SECTIONS


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported(tmp_path):
    refused(script("gpu", "--output", tmp_path / "gpu", check=False), "GPU", "--rehearse")
    assert not list(tmp_path.iterdir())


def test_its_sections_end_within_nine_minutes():
    assert tuple(SECTIONS) == script_module("gpu").NAMES
    assert sum(limit for _, limit in SECTIONS.values()) <= 540


@pytest.mark.parametrize(
    "ending, limit, how",
    [("", 60, "done"), ("exit(3)", 60, "3"), ("import time; time.sleep(99)", 1, "stopped")],
)
def test_how_a_section_ends(tmp_path, capsys, ending, limit, how):
    log = tmp_path / "gpu.log"
    log.write_text("before\n")
    command = [sys.executable, "-c", f"print('here', flush=True); {ending}"]
    assert how in script_module("gpu").in_time(command, limit, log)
    assert capsys.readouterr().out.startswith("here") and log.read_text().startswith("before\nhere")


QUICK = "attention"
LONG = [pytest.param(name, marks=pytest.mark.nightly) for name in SECTIONS if name != QUICK]


@pytest.mark.slow
@pytest.mark.parametrize("name", [QUICK, *LONG])
def test_rehearsal(data, tmp_path, name):
    flags = ["--rehearse", "--corpus", "toy", "--data", data, "--output", tmp_path / "new", "--section", name]
    done = script("gpu", *flags, anew=True)
    report = json.loads((tmp_path / "new" / f"{name}.json").read_text(encoding="utf-8"))
    assert report["benchmark"].endswith(name) and len(report) > 7, "nothing was measured"
    assert done.stdout.endswith(f"{name}: done\n")
    assert f"## {name}" in (tmp_path / "new" / "gpu.log").read_text(encoding="utf-8")
