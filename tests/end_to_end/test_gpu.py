"""The script for GPUs, rehearsed without one."""

import json

import pytest
import torch
from commands import refused, script

from user_dir.benchmarks.random_tokens import SYSTEMS


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported(tmp_path):
    refused(script("gpu", "--output", tmp_path / "gpu.json", check=False), "GPU", "--rehearse")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_rehearsal(tmp_path):
    output = tmp_path / "new" / "gpu.json"
    done = script("gpu", "--rehearse", "--output", output, anew=True)
    report = json.loads(output.read_text(encoding="utf-8"))
    assert report["tests_passed"] and report["alpha_error"] < 1e-4
    assert [row["system"] for row in report["training"]] == list(SYSTEMS)
    assert "peak in training" in done.stdout and "| target" in done.stdout
