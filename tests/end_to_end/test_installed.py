"""The wheel as fairseq's plugin, in the folder that ``python -m adaptively_sparse`` prints; its command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import fairseq, of, read_alpha_log, train_flags

from user_dir.checkpoints import load_checkpoint
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
