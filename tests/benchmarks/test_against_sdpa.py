"""Our attention against PyTorch's: every contender attends, and the sums are right."""

import json

import pytest
import torch
from commands import refused, script
from helpers import computed

from user_dir.attention.dense import dense_attention
from user_dir.benchmarks import against_sdpa as benchmark
from user_dir.benchmarks.attention import verdict_table
from user_dir.benchmarks.contenders import alphas

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("causal", (False, True))
def test_all_contenders_give_what_they_should(causal):
    q, k, v = (torch.randn(1, 8, 9, 16) for _ in range(3))
    for contender in benchmark.contenders(causal):
        alpha = alphas(contender.alpha, 8, q.device)
        truth, _ = computed(dense_attention, q, k, v, alpha, causal=causal)
        given = [tensor.to(contender.dtype or torch.float32) for tensor in (q, k, v)]
        found = contender.function(*given, alpha)
        assert found.dtype == given[0].dtype
        if contender.name == benchmark.DROPOUT:
            assert not torch.allclose(found, truth, atol=1e-2)
        else:
            near = 1e-5 if contender.dtype is None else 0.1
            torch.testing.assert_close(found.float(), truth, rtol=0, atol=near)


def test_rows_and_table():
    rows = [row for length in (5, 300) for row in benchmark.compare(length, 1, 1, 1, torch.float32)]
    assert [row["mask"] for row in rows] == (["full"] * 6 + ["causal"] * 6) * 2
    assert all(row["seconds"][measure]["median"] > 0 for row in rows for measure in benchmark.MEASURES)
    peak = {(row["length"], row["mask"], row["implementation"]): row["peak_bytes"] for row in rows}
    # of 300 keys few have weight at 1.5: less is kept than the weights of all pairs
    assert 0 < peak[300, "full", benchmark.OURS_15] < 8 * 300 * (300 + 4 * 64) * 4
    text = benchmark.sdpa_table(rows)
    assert all(name in text for name in (benchmark.SDPA, benchmark.OURS, benchmark.OURS_15, "causal"))


def test_a_failure_is_named(monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("no such kernel")

    monkeypatch.setattr(benchmark, "attention", broken)
    with pytest.raises(
        RuntimeError, match=r"forward of α-entmax, α learned, n = 4: ValueError: no such kernel"
    ):
        benchmark.compare(4, 1, 1, 1, torch.float32)


def test_aims_are_of_geometric_means_over_long_and_over_short_sequences():
    def row(length, name, milliseconds):
        seconds = {measure: {"median": milliseconds / 1000} for measure in benchmark.MEASURES}
        return {"length": length, "mask": "full", "implementation": name, "seconds": seconds}

    rows = [row(length, benchmark.SDPA, 10.0) for length in (32, 512, 1024)]
    rows += [row(32, benchmark.OURS, 90.0), row(512, benchmark.OURS, 5.0), row(1024, benchmark.OURS, 20.0)]
    halves = benchmark.ratios(rows, benchmark.OURS, benchmark.SDPA, "forward")
    assert halves[512, "full"] == pytest.approx(0.5)
    aims = benchmark.aims(rows)
    assert len(aims) == 3 + 4, "nothing is said of α = 1.5 and bfloat16, which were not measured"
    forward = [aim["measured"] for aim in aims if aim["aim"].startswith("forward")]
    assert forward == pytest.approx([1.0, 2.0, 9.0, 9.0])  # mean and worst of long ones, then of short ones
    assert [aim["reached"] for aim in aims if aim["aim"].startswith("training")] == [False] * 3
    assert verdict_table(aims).count("| no ") == 6


def test_bfloat16_is_compared_with_bfloat16():
    def row(name, milliseconds):
        seconds = {measure: {"median": milliseconds / 1000} for measure in benchmark.MEASURES}
        return {"length": 32, "sentences": 1, "mask": "full", "implementation": name, "seconds": seconds}

    times = {benchmark.SDPA: 10, benchmark.SDPA_BFLOAT16: 40, benchmark.BFLOAT16: 30, benchmark.OURS: 5}
    lines = benchmark.sdpa_table([row(*each) for each in times.items()]).splitlines()
    line = next(line for line in lines if benchmark.BFLOAT16 in line)
    assert "0.75" in line and "3.00" not in line


def test_command(tmp_path):
    output = tmp_path / "attention.json"
    flags = ("--lengths", "4", "--rounds", "1", "--threads", "1")
    done = script("benchmark", "attention", *flags, "--output", output)
    assert done.stdout.count(benchmark.OURS_15) == 2
    report = json.loads(output.read_text(encoding="utf-8"))
    assert {row["length"] for row in report["rows"]} == {4} and len(report["aims"]) == 8
    refused(script("benchmark", "attention", "--lengths", "0", check=False), "--lengths", "0")
