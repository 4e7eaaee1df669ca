"""The installed package: all files, only torch required, and the README's example outside the repository."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from user_dir import __version__
from user_dir.checkout import ROOT
from user_dir.errors import UserError
from user_dir.releases.wheel import PIP, build_wheel

NOT_NEEDED = ("fairseq", "hydra", "omegaconf", "sacrebleu", "tqdm")


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The Python of a new environment with the wheel, torch and torch's requirements."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    (folder / "torch").mkdir()
    for distribution in map(importlib.metadata.distribution, with_requirements("torch")):
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (folder / "torch" / top).exists():  # NVIDIA's libraries share a folder
                (folder / "torch" / top).symlink_to(distribution.locate_file(top))
    (packages,) = (folder / "venv").glob("lib/*/site-packages")
    (packages / "torch.pth").write_text(str(folder / "torch"))
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    return python


def with_requirements(name: str) -> set[str]:
    """A distribution and all its requirements, recursively."""
    found, left = set(), [name]
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found.add(name)
            requirements = map(Requirement, importlib.metadata.requires(name) or [])
            left += [
                each.name for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})
            ]
    return found


def run(*command, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    package = ROOT / "user_dir"
    files = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    expected = {f"adaptively_sparse/{file}" for file in files if "__pycache__" not in file.parts}
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {"adaptively_sparse/py.typed", "adaptively_sparse/cpp/lanes.h"} <= expected


@pytest.mark.slow
def test_equal_files_give_equal_bytes(wheel, tmp_path):
    """Whatever the user's umask."""
    before = os.umask(0o077)
    try:
        again = build_wheel(tmp_path)
    finally:
        os.umask(before)
    assert again.read_bytes() == wheel.read_bytes()


def test_installed_it_says_where_wheels_are_built(tmp_path, monkeypatch):
    monkeypatch.setattr("user_dir.releases.wheel.IN_CHECKOUT", False)
    with pytest.raises(UserError, match="in a checkout"):
        build_wheel(tmp_path / "new")


def test_the_example_of_the_readme_runs_with_torch_alone(python, tmp_path):
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## In your own PyTorch model")[1]
    code, printed = re.search(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", section, re.DOTALL).groups()
    modules = f"import sys\nprint([name for name in {NOT_NEEDED} if name in sys.modules])\n"
    assert run(python, "-c", code + modules, cwd=tmp_path) == printed + "[]\n"
    search = f"import importlib.util as u\nprint([name for name in {NOT_NEEDED} if u.find_spec(name)])"
    assert run(python, "-c", search, cwd=tmp_path) == "[]\n", "the environment is not what the test is about"


def test_the_module_prints_the_user_dir(python, tmp_path):
    folder = Path(run(python, "-m", "adaptively_sparse", cwd=tmp_path).strip())
    assert folder.name == "adaptively_sparse" and (folder / "models" / "__init__.py").is_file()
    assert python.parents[1] in folder.parents
    assert run(sys.executable, "-m", "user_dir", cwd=ROOT).strip() == str(ROOT / "user_dir")


def test_the_command_says_what_it_needs(python, tmp_path):
    command = python.with_name("adaptively-sparse")
    assert "\n  translate " in run(command, "--help", cwd=tmp_path)
    done = subprocess.run([command, "guards"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "tabulate" in done.stderr and "pip install" in done.stderr
    words = [command, "evaluate", "--path", "x.pt", "--corpus", "y"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "pip install" in done.stderr, (
        done.stderr
    )


def test_there_is_one_version(wheel):
    metadata = zipfile.ZipFile(wheel).read(f"adaptively_sparse-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == __version__
    released = re.search(
        r"^## \[?(\d[\w.]*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert released.group(1) == __version__


def test_the_extras_are_what_the_requirements_install(wheel):
    metadata = zipfile.ZipFile(wheel).read(f"adaptively_sparse-{__version__}.dist-info/METADATA").decode()
    declared = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)]
    always = [each.name for each in declared if "extra" not in str(each.marker)]
    assert always == ["torch"]
    extras = {
        (each.name, str(each.specifier))
        for each in declared
        if each.name not in ("torch", "adaptively-sparse")
    }
    lines = [
        line
        for name in ("requirements.txt", "requirements-dev.txt")
        for line in (ROOT / name).read_text().splitlines()
    ]
    asked = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert extras == {(each.name, str(each.specifier)) for each in asked if each.name != "torch"}
