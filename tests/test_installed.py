"""The installed package: it brings its files, and its mathematics needs torch alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import checked, forks, lines, refused, train_with

ROOT = Path(__file__).resolve().parents[1]
# All but torch and what it needs.
BLOCKED = """
import sys

ABSENT = "fairseq hydra matplotlib msgspec omegaconf regex sacrebleu tqdm triton yaml".split()

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
IMPORTS = """
import logging, warnings
import torch

def state():
    return logging.root.level, list(logging.root.handlers), list(warnings.filters)

before, modules = state(), set(sys.modules)
import adaptively_sparse.attention, adaptively_sparse.entmax, adaptively_sparse.latent
assert state() == before and len(set(sys.modules) - modules) < 60
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder into which pip has installed a copy of the repository."""
    folder = tmp_path_factory.mktemp("installed")
    ignored = shutil.ignore_patterns("__pycache__", "raw", "bin", "text")
    for name in ("user_dir", "data", "configs"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    pip += ["--no-index", "--no-build-isolation", "--target", folder / "packages", folder / "source"]
    subprocess.run(pip, check=True)
    return folder / "packages"


@pytest.mark.slow
def test_the_example_of_the_readme_runs_with_torch_alone(packages, tmp_path):
    """Imports of the mathematics are few, and leave logging and warnings alone."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## In your own PyTorch model")[1]
    code, printed = re.search(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", section, re.DOTALL).groups()
    program = f"{BLOCKED}\nsys.path.insert(0, {str(packages)!r})\n{IMPORTS}\n{code}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == printed, done.stderr


@pytest.mark.slow
def test_it_brings_its_files_corpora_and_configs(packages):
    package = packages / "adaptively_sparse"
    source = ROOT / "user_dir"
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    wanted = {file for file in files if "__pycache__" not in file.parts}
    assert wanted <= {path.relative_to(package) for path in package.rglob("*")}
    for pattern in ("data/*/corpus.yaml", "data/models/de-en/*", "configs/*/*.yaml"):
        shared = {path.relative_to(ROOT) for path in ROOT.glob(pattern)}
        assert shared and shared <= {
            path.relative_to(package / "shared") for path in package.glob(f"shared/{pattern}")
        }


@pytest.mark.slow
def test_from_a_file_of_pairs_to_a_training(packages, tmp_path):
    command = tmp_path / "command.py"
    command.write_text(
        f"import sys; sys.path.insert(0, {str(packages)!r})\n"
        "from adaptively_sparse.commands import console; console()\n"
    )
    sides = [lines(ROOT / "data" / "toy" / "raw" / f"train.{language}")[:200] for language in ("de", "en")]
    (tmp_path / "talks.tsv").write_text("".join(f"{left}\t{right}\n" for left, right in zip(*sides)))
    words = ["prepare", "--pairs", "talks.tsv", "--source", "de", "--target", "en", "--workers", "1"]
    told = checked(forks().run(command, *words, cwd=tmp_path), True).stdout
    assert told.endswith("\nnext: adaptively-sparse train configs/talks/alpha_entmax.yaml\n")
    text = tmp_path / "data" / "talks" / "text"
    for subset, number in (("valid", 0), ("test", 1)):
        expected = [left for n, left in enumerate(sides[0], 1) if n % 20 == number]
        assert lines(text / f"{subset}.de") == expected
    assert not set(lines(text / "train.en")) & {*lines(text / "valid.en"), *lines(text / "test.en")}
    changes = ["optimization.max_update=2", "dataset.num_workers=0", "task.data=data/talks/bin"]
    train_with(tmp_path / "configs" / "talks" / "alpha_entmax.yaml", *changes, root=tmp_path)
    assert (tmp_path / "checkpoints" / "talks" / "alpha_entmax" / "checkpoint_best.pt").is_file()
    own = tmp_path / "data" / "talks" / "raw"
    assert [lines(own / f"talks.{language}") for language in ("de", "en")] == sides
    there = ["prepare", "--pairs", own / "talks.de", own / "talks.en", "--workers", "1"]
    checked(forks().run(command, *there, cwd=tmp_path), True)
    assert [lines(own / f"talks.{language}") for language in ("de", "en")] == sides
    done = forks().run(command, *words, "--source", "sl", cwd=tmp_path)
    refused(done, "another corpus data/talks/corpus.yaml; choose another --name")
