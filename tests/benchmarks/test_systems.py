import torch
from helpers import batch, build, loss

from user_dir.benchmarks.systems import bisection_inside
from user_dir.modules import multihead_attention


def test_bisection_inside_replaces_entmax_by_entmax_bisect(monkeypatch):
    import entmax

    calls = []

    def counted(scores, alpha):
        calls.append(scores.dtype)
        return entmax_bisect(scores, alpha)

    entmax_bisect = entmax.entmax_bisect
    monkeypatch.setattr(entmax, "entmax_bisect", counted)
    model, sample, ours = build("--alpha-init 1.4").float(), batch(), multihead_attention.attention
    expected = loss(model, sample)
    with bisection_inside():
        found = loss(model, sample)
    assert calls == [torch.float32] * 6  # 2 layers, 3 types of attention
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert multihead_attention.attention is ours
