"""The attention benchmark: its code, with sizes too small for meaningful times."""

import pytest
import torch
from helpers import computed, dictionary
from no_gpu import take_triton_kernels

from user_dir.attention.dense import dense_attention
from user_dir.benchmarks import attention as benchmark
from user_dir.benchmarks.attention import attention_table, verdict_table
from user_dir.benchmarks.contenders import Contender, alphas
from user_dir.benchmarks.random_tokens import batches

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def small(monkeypatch):
    """Small heads, on the GPU kernels."""
    monkeypatch.setattr(benchmark, "HEADS", 2)
    monkeypatch.setattr(benchmark, "HEAD_DIM", 16)
    take_triton_kernels(monkeypatch)
    monkeypatch.setattr("user_dir.attention.triton_backend.passes_check", lambda query: True)


def test_all_contenders_give_correct_results(small):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, 5, 16, generator=generator).to(DEVICE) for _ in range(3))
    expected = {}
    for contender in benchmark.CONTENDERS:
        half = q.is_cuda and contender.name in (benchmark.FLASH, benchmark.CUDNN)
        if contender.name == benchmark.ADASPLASH or half:
            continue  # the former is not installed, the latter do not support float32
        alpha = alphas(contender.alpha, 2, DEVICE)
        output = contender.function(q, k, v, alpha)
        truth = expected.setdefault(contender.alpha, computed(dense_attention, q, k, v, alpha)[0])
        torch.testing.assert_close(output, truth, rtol=0, atol=1e-5)


def test_rows_tables_and_verdicts(small):
    rows = benchmark.time_attention(4, 1, 1, 1, DEVICE, torch.float32)
    assert [row["implementation"] for row in rows] == [each.name for each in benchmark.CONTENDERS]
    by_name = {row["implementation"]: row for row in rows}
    for name in (
        benchmark.FUSED,
        benchmark.FUSED_15,
        benchmark.DENSE,
        benchmark.EFFICIENT,
        benchmark.BISECTION,
    ):
        assert not by_name[name]["failures"] and by_name[name]["peak_bytes"] > 0
        measured = set(benchmark.MEASURES) - (set() if DEVICE.type == "cuda" else {benchmark.GRAPH})
        assert by_name[name]["seconds"].keys() == measured
        assert all(times["median"] > 0 for times in by_name[name]["seconds"].values())
    assert by_name[benchmark.FUSED]["peak_bytes"] < by_name[benchmark.BISECTION]["peak_bytes"]
    text = attention_table(rows)
    assert all(each.name in text for each in benchmark.CONTENDERS)

    error = benchmark.alpha_error(6, 1, DEVICE, torch.float32)
    assert error < 1e-4
    rows = [{**row, "length": 32} for row in rows]
    for row in rows:
        row["seconds"] = {"training": {"median": 2.0 if row["implementation"] == benchmark.FUSED else 1.0}}
    found = benchmark.verdicts(rows, error, 0.96)
    reached = {verdict["aim"]: verdict["reached"] for verdict in found}
    assert not reached["training time / SDPA memory-efficient, n = 32"]
    assert reached["training time per token / stock fairseq, base model"]
    assert reached["relative error of the gradient of α"]
    assert verdict_table(found).count("| no ") == 2


def test_the_error_of_a_failing_contender_is_reported():
    def broken(q, k, v, alpha):
        raise RuntimeError("no such\nkernel")

    rows = benchmark.time_attention(4, 1, 1, 1, DEVICE, torch.float32, (Contender("broken", 1.0, broken),))
    assert rows[0]["failures"]["training"] == "RuntimeError: no such kernel" and rows[0]["seconds"] == {}
    assert "RuntimeError" in attention_table(rows)


def test_random_batches():
    words = dictionary()
    samples = batches(3, 500, words, seed=1)
    assert len(samples) == 3
    for sample in samples:
        assert sample["target"].numel() <= 500 and sample["source"].shape == sample["target"].shape
        real = sample["target"] != words.pad()
        assert (
            torch.equal(real.sum(1), sample["lengths"]) and (sample["target"][real] >= words.nspecial).all()
        )
        assert torch.equal(sample["source"] != words.pad(), real.flip(1))  # padded on the left
        assert (sample["previous"][:, 0] == words.eos()).all()
    again = batches(3, 500, words, seed=1)
    assert all(torch.equal(a["source"], b["source"]) for a, b in zip(samples, again))
