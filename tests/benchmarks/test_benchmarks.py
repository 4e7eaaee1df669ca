"""Benchmarks: each has a quick form, and measures what it says."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("bert_layer", "end_to_end", "aims")]


@pytest.fixture(params=["kernels", "attention", *NIGHTLY])
def module(request):
    return importlib.import_module(request.param)


WORDS = {
    "kernels": ["--shapes", "2x2x4x8"],
    "attention": ["--lengths", "8", "16"],
    "bert_layer": [],
    "aims": [],
    "end_to_end": ["--random-tokens", "--max-tokens", "100"],
}


@pytest.mark.slow
def test_the_quick_form_measures_ours_and_others(module, tmp_path, monkeypatch, capsys):
    output = tmp_path / "new" / "report.json"
    words = ["--cpu", "--quick", "--rounds", "1", "--output", str(output), *WORDS[module.__name__]]
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *words])
    with np.errstate(all="ignore"):
        module.main()
    report, printed = json.loads(output.read_text(encoding="utf-8")), capsys.readouterr().out
    assert report["machine"]["device"] == "cpu" and report["versions"]["torch"] == torch.__version__
    if module.__name__ == "kernels":
        ours = [row for row in report["accuracy"] if row["implementation"] == "ours"]
        assert max(row["weights"] for row in ours) < 1e-6
        assert max(row.get("alpha_gradient", 0) for row in ours) < 1e-5
        assert {row["implementation"] for row in report["losses"]} >= {"ours", "entmax15_loss"}
        assert "to_softmax" in printed
    elif module.__name__ == "attention":
        rows = [row for row in report["rows"] if row["attention"].startswith("α-entmax")]
        measured = {(row["length"], row["mask"], row["measure"]) for row in rows}
        assert measured == {*product((8, 16), ("full", "causal"), ("forward", "training"))}
        assert all("failure" not in row and row["to_sdpa"] > 0 for row in rows) and "to_sdpa" in printed
        assert all(row["peak_mib"] > 0 for row in rows if row["measure"] == "training")
    elif module.__name__ == "bert_layer":
        assert [row["measure"] for row in report["rows"]] == ["forward", "training"] and "sdpa_ms" in printed
    elif module.__name__ == "aims":
        function, *others = report["rows"]
        without = [row for row in others if row["aim"] == " "]
        assert (function["missed"] == "missed") == (function["now"] > 1.7) and "at most 1.7" in printed
        assert without and all(row["now"] > 0 and row["missed"] == "" for row in without)
    else:
        training, translation = report["training"], report["translation"]
        assert all(row["per_second"] > 0 for row in training)
        names = {row["system"] for row in translation}
        assert {
            "stock transformer",
            "ours, α-entmax",
            "ours, α-entmax, int8",
            "CTranslate2, softmax, int8",
        } <= names
        assert {row["beam"] for row in translation} == {5, 1}


def test_contenders_take_turns_in_random_order():
    measure, order = importlib.import_module("measure"), []
    jobs = {name: lambda number, name=name: order.append(name) or number for name in "abc"}
    assert measure.in_turns(jobs, 20) == {name: [*range(20)] for name in "abc"}
    rounds = [tuple(order[start : start + 3]) for start in range(0, 60, 3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds) and len(set(rounds)) > 3


def test_ratios_are_within_rounds_and_peaks_are_of_memory_held_at_once():
    measure = importlib.import_module("measure")
    assert measure.ratio([1.0, 20.0, 3.0], [2.0, 10.0, 3.0]) == 1.0

    def call():
        first = torch.ones(1 << 18)  # 1 MiB
        del first
        second = torch.ones(1 << 19)
        return second + 1

    assert 4 << 20 <= measure.peak_memory(call) < 5 << 20


def test_sections_for_a_gpu_end_one_by_one(tmp_path):
    python = tmp_path / "python"  # in place of Python, which fails for the benchmark of attention
    python.write_text('#!/bin/sh\necho "$@"\ntest "$1" != benchmarks/attention.py\n')
    python.chmod(0o755)
    environment = {**os.environ, "OUT": str(tmp_path), "PYTHON": str(python)}
    done = subprocess.run([ROOT / "benchmarks/gpu.sh"], env=environment, capture_output=True, text=True)
    *_, before, last = done.stdout.splitlines()
    assert done.returncode == 1 and before.endswith("status 0") and last == "attention: exit status 1"
    assert len(list(tmp_path.glob("*.log"))) == 6
    for word in done.stdout.split():
        assert not word.endswith((".py", ".yaml")) or (ROOT / word).is_file(), word
