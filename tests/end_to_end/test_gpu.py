"""The script for GPUs, rehearsed without one."""

import json
import subprocess
from types import SimpleNamespace

import pytest
import torch
from commands import ROOT, refused, script
from helpers import script_module

from user_dir.benchmarks.random_tokens import SYSTEMS


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported(tmp_path):
    refused(script("gpu", "--output", tmp_path / "gpu.json", check=False), "GPU", "--rehearse")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rehearse", [False, True])
@pytest.mark.parametrize("status", [0, 1])
def test_the_tests_it_runs(monkeypatch, rehearse, status):
    run = []
    done = SimpleNamespace(returncode=status)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: run.append((command, options)) or done)
    assert script_module("gpu").run_tests(rehearse) is (status == 0)
    ((command, options),) = run
    paths = [word for word in command if word.startswith("tests/")]
    assert len(paths) == (1 if rehearse else 4) and all((ROOT / path).exists() for path in paths)
    assert "TRITON_INTERPRET" not in options["env"], "on a GPU, kernels would run in the interpreter"


@pytest.mark.slow
@pytest.mark.parametrize("tests", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_rehearsal(tmp_path, tests):
    output = tmp_path / "new" / "gpu.json"
    flags = ["--rehearse", "--output", output, *([] if tests else ["--no-tests"])]
    done = script("gpu", *flags, anew=True)
    report = json.loads(output.read_text(encoding="utf-8"))
    assert report["tests_passed"] is (True if tests else None)
    assert report["alpha_error"] < 1e-4
    assert [row["system"] for row in report["training"]] == list(SYSTEMS)
    assert "peak in training" in done.stdout and "| target" in done.stdout
