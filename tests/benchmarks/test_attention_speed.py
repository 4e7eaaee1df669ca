"""The attention benchmark: its code, with sizes too small for meaningful times."""

import sys
from types import SimpleNamespace

import pytest
import torch
from helpers import computed
from no_gpu import take_triton_kernels

from user_dir.attention.dense import dense_attention
from user_dir.benchmarks import attention as benchmark
from user_dir.benchmarks import attention_peers as peers
from user_dir.benchmarks.attention import attention_table, verdict_table
from user_dir.benchmarks.contenders import Contender, alphas

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def small(monkeypatch):
    """Small heads, on the GPU kernels."""
    monkeypatch.setattr(benchmark, "HEADS", 2)
    monkeypatch.setattr(benchmark, "HEAD_DIM", 16)
    take_triton_kernels(monkeypatch)
    monkeypatch.setattr("user_dir.attention.triton_backend.passes_check", lambda *given, **options: True)


def stand_ins(monkeypatch):
    """Packages of other attentions as plain torch, with their layouts and what they require."""

    def flash(q, k, v, causal):
        heads = (x.transpose(1, 2) for x in (q, k, v))
        output = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal).transpose(1, 2)
        return output, None

    def adasplash(q, k, v, alpha=1.5, is_causal=True):
        assert all(x.is_contiguous() for x in (q, k, v))
        return computed(dense_attention, q, k, v, alpha, causal=is_causal)[0]

    for name in ("flash_attn", "flash_attn_interface"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(flash_attn_func=flash))
    package = SimpleNamespace(adasplash=adasplash, adasplash_v1=adasplash, adasplash_v2=adasplash)
    monkeypatch.setitem(sys.modules, "adasplash", package)


@pytest.mark.parametrize("causal", (False, True))
def test_all_contenders_give_correct_results(small, monkeypatch, causal):
    stand_ins(monkeypatch)
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, 5, 16, generator=generator).to(DEVICE) for _ in range(3))
    expected = {}
    for contender in benchmark.contenders(causal):
        if q.is_cuda and contender.name in (peers.FLASH, peers.CUDNN):
            continue  # they do not support float32
        alpha = alphas(contender.alpha, 2, DEVICE)
        output = contender.function(q, k, v, alpha)
        if contender.alpha not in expected:
            expected[contender.alpha] = computed(dense_attention, q, k, v, alpha, causal=causal)[0]
        torch.testing.assert_close(output, expected[contender.alpha], rtol=0, atol=1e-5)


def test_rows_tables_and_verdicts(small):
    rows = benchmark.time_attention(4, 1, 1, 1, DEVICE, torch.float32)
    assert [row["implementation"] for row in rows] == [each.name for each in benchmark.contenders(False)]
    by_name = {row["implementation"]: row for row in rows}
    for name in (peers.FUSED, peers.FUSED_15, peers.DENSE, peers.EFFICIENT, peers.BISECTION):
        assert not by_name[name]["failures"] and by_name[name]["peak_bytes"] > 0
        measured = set(benchmark.MEASURES) - (set() if DEVICE.type == "cuda" else {benchmark.GRAPH})
        assert by_name[name]["seconds"].keys() == measured
        assert all(times["median"] > 0 for times in by_name[name]["seconds"].values())
    assert by_name[peers.FUSED]["peak_bytes"] < by_name[peers.BISECTION]["peak_bytes"]

    table = attention_table(rows)
    absent = [row["implementation"] for row in rows if not row["seconds"]]
    assert {peers.FLASH_2, peers.FLASH_3} <= {*absent}  # neither is among the requirements
    for row in rows:
        name = row["implementation"]
        assert (f"left out: {name} (n = 4 full): ModuleNotFound" in table) == (name in absent)
        assert (f"| {name} " in table) == (name not in absent)

    assert benchmark.alpha_error(6, 1, DEVICE, torch.float32) < 1e-4


def row(mask, name, length, **medians):
    seconds = {measure: {"median": median} for measure, median in medians.items()}
    return {"mask": mask, "implementation": name, "length": length, "seconds": seconds}


def test_verdicts():
    rows = [
        row("full", peers.FUSED, 32, training=2.0, step=1.1),
        row("full", peers.EFFICIENT, 32, training=1.9, step=1.0),
        row("full", peers.FUSED, 512, **{benchmark.GRAPH: 4.0}),
        row("full", peers.FLASH, 512, **{benchmark.GRAPH: 2.0}),
        row("full", peers.CUDNN, 512, **{benchmark.GRAPH: 3.0}),
        row("causal", peers.FUSED_15, 1024, training=1.0),
        row("causal", peers.ADASPLASH_2, 1024, training=1.25),
        row("full", peers.FUSED_15, 1024, training=9.0),
    ]
    found = [(each["measured"], each["reached"]) for each in benchmark.verdicts(rows, 1e-4)]
    assert found == [(2.0 / 1.9, False), (2.0, False), (1.1, True), (0.8, True), (1e-4, True)]
    assert verdict_table(benchmark.verdicts(rows, 1e-4)).count("| no ") == 2


def test_the_error_of_a_failing_contender_is_reported():
    def broken(q, k, v, alpha):
        raise RuntimeError("no such\nkernel")

    rows = benchmark.time_attention(4, 1, 1, 1, DEVICE, torch.float32, (Contender("broken", 1.0, broken),))
    assert rows[0]["failures"]["training"] == "RuntimeError: no such kernel" and rows[0]["seconds"] == {}
    assert "RuntimeError" in attention_table(rows)
