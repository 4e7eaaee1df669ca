"""ReLA, beside loops over sentences, heads and queries."""

import math

import pytest
import torch
from helpers import MODEL_TOLERANCE

from user_dir.attention.inputs import AttentionInputs
from user_dir.attention.normalizers.rela import GatedRMSNorm, ReLA


def slow(q, k, v, hidden):
    """Weights and outputs one by one; ``hidden(b, t, s)`` says whether a key is masked."""
    weights = torch.zeros(*q.shape[:3], k.size(2), dtype=q.dtype)
    for b, h, t, s in torch.cartesian_prod(*(torch.arange(size) for size in weights.shape)).tolist():
        if not hidden(b, t, s):
            weights[b, h, t, s] = max(0.0, float(q[b, h, t] @ k[b, h, s]) / math.sqrt(q.size(-1)))
    return torch.einsum("bhts,bhsd->bhtd", weights, v), weights


def rela(q, k, v, *masks, **options):
    """Output and weights; without an α."""
    return ReLA()(AttentionInputs(q, k, v, 1.0, *masks, **options), "auto")


def inputs(queries=4, keys=4):
    q = torch.randn(2, 3, queries, 5, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(2, 3, keys, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    return q, k, v


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("padded", (False, True))
def test_equals_loops(causal, padded):
    q, k, v = inputs()
    padding = torch.tensor([[True, False, False, False], [True, True, True, True]]) if padded else None
    output, weights = rela(q, k, v, padding, causal=causal, need_weights=True)
    expected = slow(q, k, v, lambda b, t, s: (causal and s > t) or (padded and bool(padding[b, s])))
    torch.testing.assert_close(output, expected[0], **MODEL_TOLERANCE)
    torch.testing.assert_close(weights, expected[1], **MODEL_TOLERANCE)
    assert (weights == 0).any()


def test_additive_masks_and_gradients():
    q, k, v = inputs(2, 3)
    mask = torch.tensor([[0.0, -math.inf, 0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *given: rela(*given, attn_mask=mask)[0], (q, k, v))
    assert rela(q, k, v, attn_mask=mask)[1] is None


def test_dropout_keeps_the_mean():
    q, k = (torch.ones(1, 1, 1000, 4) for _ in range(2))
    output, _ = rela(q, k, torch.ones(1, 1, 1000, 4), dropout=0.5)
    assert output.mean().item() == pytest.approx(2 * 1000, rel=0.01)


def test_the_norm_equals_its_formula():
    norm = GatedRMSNorm(6).double()
    norm.scale.data.uniform_(0.5, 2)
    x = torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True)
    for row, found in zip(x.view(-1, 6), norm(x).view(-1, 6)):
        rms = math.sqrt(sum(float(value) ** 2 for value in row) / 6)
        for value, scale, gate, actual in zip(row, norm.scale, norm.gate, found):
            expected = float(scale * value) / rms / (1 + math.exp(-float(gate * value)))
            assert float(actual) == pytest.approx(expected, rel=1e-6)
    assert torch.autograd.gradcheck(norm, x)
    assert not norm(torch.zeros(2, 6)).any()
    assert norm.float()(torch.full((1, 6), 300.0, dtype=torch.float16)).isfinite().all()
