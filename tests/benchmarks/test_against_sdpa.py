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
    assert [row["mask"] for row in rows] == (["full"] * 5 + ["causal"] * 5) * 2
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


def test_aims_are_of_the_geometric_mean_over_long_sequences():
    def row(length, name, milliseconds):
        seconds = {measure: {"median": milliseconds / 1000} for measure in benchmark.MEASURES}
        return {"length": length, "mask": "full", "implementation": name, "seconds": seconds}

    rows = [row(length, benchmark.SDPA, 10.0) for length in (32, 512, 1024)]
    rows += [row(32, benchmark.OURS, 900.0), row(512, benchmark.OURS, 5.0), row(1024, benchmark.OURS, 20.0)]
    assert benchmark.ratios(rows, benchmark.OURS, benchmark.SDPA, "forward")[512, "full"] == pytest.approx(
        0.5
    )
    found = {aim["aim"].split(", n")[0] + aim["aim"][-5:]: aim for aim in benchmark.aims(rows)}
    mean, worst = found[f"forward, {benchmark.OURS} mean"], found[f"forward, {benchmark.OURS}worst"]
    assert mean["measured"] == pytest.approx(1.0) and worst["measured"] == pytest.approx(2.0)
    assert not worst["reached"]
    assert not found[f"training, {benchmark.OURS} mean"]["reached"]
    assert len(found) == 3, "nothing is said of α = 1.5, which was not measured"
    assert verdict_table(list(found.values())).count("| no ") >= 2


def test_command(tmp_path):
    output = tmp_path / "attention.json"
    flags = ("--lengths", "4", "--rounds", "1", "--threads", "1")
    done = script("benchmark", "attention", *flags, "--output", output)
    assert done.stdout.count(benchmark.OURS_15) == 2
    report = json.loads(output.read_text(encoding="utf-8"))
    assert {row["length"] for row in report["rows"]} == {4} and report["aims"] == []
    refused(script("benchmark", "attention", "--lengths", "0", check=False), "--lengths", "0")
