"""constraints.txt: exact versions of all direct and indirect requirements, for every supported Python."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
MACHINES = [
    {"python_version": version, "python_full_version": f"{version}.1", "sys_platform": system.lower()}
    | {"platform_system": system, "platform_machine": machine}
    for version in ("3.10", "3.11", "3.12")
    for system, machine in (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))
]


def requirements(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in (line.split("#")[0].strip() for line in lines) if line]


def pins(machine):
    """The version of each package on a machine; fails if a package has two."""
    versions = {}
    for pin in requirements("constraints.txt"):
        if pin.marker is None or pin.marker.evaluate(machine):
            assert canonicalize_name(pin.name) not in versions, f"{pin.name} is pinned twice on {machine}"
            versions[canonicalize_name(pin.name)] = str(pin.specifier).removeprefix("==")
    return versions


def test_versions_are_exact_and_portable():
    for pin in requirements("constraints.txt"):
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin  # no range, no +cpu
        assert pin.url is None, pin


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: " ".join(machine.values()))
def test_every_requirement_is_met(machine):
    versions = pins(machine)
    for requirement in requirements("requirements.txt") + requirements("requirements-dev.txt"):
        if requirement.marker is None or requirement.marker.evaluate(machine):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


def test_what_comes_with_the_requirements_is_pinned():
    versions, seen = pins(None), set()
    left = [(entry, "") for entry in requirements("requirements.txt") + requirements("requirements-dev.txt")]
    while left:
        requirement, extra = left.pop()
        name = canonicalize_name(requirement.name)
        if (requirement.marker and not requirement.marker.evaluate({"extra": extra})) or name in seen:
            continue
        seen.add(name)
        assert name in versions, f"{requirement} is not in constraints.txt: make lock"
        # `make setup` removes torchaudio again.
        further = (importlib.metadata.requires(name) if name != "torchaudio" else None) or []
        left += [(Requirement(text), extra) for text in further for extra in ("", *requirement.extras)]
    assert "antlr4-python3-runtime" in seen  # required by hydra, which fairseq requires
