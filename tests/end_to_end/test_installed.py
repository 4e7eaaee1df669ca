"""The wheel as fairseq's plugin, in the folder that ``python -m adaptively_sparse`` prints; its command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import fairseq, of, read_alpha_log, train_flags
from tiny_release import contents, tiny_checkpoint, tiny_corpus

from user_dir.checkout import ROOT
from user_dir.checkpoints import load_checkpoint
from user_dir.releases.archive import write_archive
from user_dir.releases.wheel import PIP

pytestmark = pytest.mark.slow


def test_the_installed_package_trains_and_translates(small, wheel, tmp_path):
    packages = tmp_path / "packages"
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", packages, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-m", "adaptively_sparse"]
    named = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    plugin = Path(named.stdout.strip())
    assert plugin == packages / "adaptively_sparse"

    run, log = tmp_path / "run", tmp_path / "alpha.jsonl"
    flags = train_flags(small, run, "--alpha-log", log, "--alpha-log-interval", "1", "--max-update", "2")
    flags[flags.index("--user-dir") + 1] = str(plugin)
    fairseq("train", *flags, cwd=tmp_path)
    state = load_checkpoint(run / "checkpoint_last.pt")
    assert state["cfg"]["common"]["user_dir"] == str(plugin)
    assert [line["update"] for line in read_alpha_log(log)] == [0, 1, 2]

    console = [sys.executable, "-c", "from adaptively_sparse.commands import console; console()"]
    words = ["translate", *of(run / "checkpoint_last.pt", small), "Ein Hund ."]
    options = {"env": environment, "cwd": tmp_path}
    done = subprocess.run([*console, *words], capture_output=True, text=True, **options)
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr


@pytest.mark.nightly  # test_wheel.py has what is in it, and the test above that it works
def test_what_pip_installs_trains_without_a_checkout(tmp_path):
    """It brings corpora, configs and models, which the commands find from an empty folder."""
    source, here = tmp_path / "source", tmp_path / "here"
    ignored = shutil.ignore_patterns("__pycache__", "bin", "text", "spm.*")
    for name in ("user_dir", "data", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    corpus, checkpoint = tiny_corpus(tmp_path / "corpus"), tiny_checkpoint(tmp_path / "last.pt")
    (source / "data" / "models").mkdir(exist_ok=True)
    write_archive("mine", contents(corpus, checkpoint), source / "data" / "models" / "tiny.tar")
    (source / "data" / "multi30k" / "raw").mkdir(exist_ok=True)
    (source / "data" / "multi30k" / "raw" / "train.de").write_text("a corpus of the user's")
    install = [*PIP, "install", "--no-deps", "--no-index", "--no-build-isolation", "--target"]
    subprocess.run([*install, tmp_path / "packages", source], check=True)
    shared = tmp_path / "packages" / "adaptively_sparse" / "shared"
    assert not (shared / "data" / "multi30k" / "raw").exists()
    for name in ("data/*/corpus.yaml", "configs/*/*.yaml"):
        assert {path.relative_to(source) for path in source.glob(name)} == {
            path.relative_to(shared) for path in shared.glob(name)
        }
    here.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}

    def run(*words: str) -> str:
        command = [sys.executable, "-c", "from adaptively_sparse.commands import console; console()", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=here)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("translate", "--model", "tiny", "Der Hund.").count("\n") == 1
    told = run("prepare", "toy")
    assert told.endswith("next: adaptively-sparse train configs/toy/alpha_entmax.yaml\n"), told
    small = ["model.encoder_layers=1", "model.decoder_layers=1", "task.eval_bleu=false"]
    small += ["checkpoint.best_checkpoint_metric=loss", "checkpoint.maximize_best_checkpoint_metric=false"]
    run(*told.rpartition("next: adaptively-sparse ")[2].split(), "optimization.max_update=2", *small)
    assert (here / "checkpoints" / "toy" / "alpha_entmax" / "checkpoint_last.pt").is_file()
