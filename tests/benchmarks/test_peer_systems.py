import itertools

import torch
from helpers import batch, build, loss

from user_dir.benchmarks.peer_systems import Bisection
from user_dir.decoding.supported import unsupported_model


def test_bisection_replaces_entmax_by_entmax_bisect(monkeypatch):
    import entmax

    calls = []

    def counted(scores, alpha):
        calls.append(scores.dtype)
        return entmax_bisect(scores, alpha)

    entmax_bisect = entmax.entmax_bisect
    monkeypatch.setattr(entmax, "entmax_bisect", counted)
    model, sample = build("--alpha-init 1.4").float(), batch()
    expected = loss(model, sample)
    for attention in itertools.chain(*model.attentions().values()):
        attention.normalizer = Bisection()
    found = loss(model, sample)
    assert calls == [torch.float32] * 6  # 2 layers, 3 types of attention
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert "Bisection" in unsupported_model(model)
