"""Normalizers, beside loops over sentences, heads, queries and keys."""

import math

import pytest
import torch
from helpers import MODEL_TOLERANCE

from user_dir.attention.inputs import AttentionInputs
from user_dir.attention.normalizers import Normalizer
from user_dir.attention.normalizers.fixed_patterns import PATTERNS, fixed_patterns
from user_dir.attention.normalizers.rela import GatedRMSNorm, ReLA


class OwnSoftmax(Normalizer):
    def __init__(self):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.ones(3, 1, 1, dtype=torch.float64))

    def weights(self, scores):
        return torch.softmax(scores * self.temperature, -1)


def test_a_normalizer_of_ones_own_need_not_know_of_queries_without_keys():
    """torch.softmax gives NaN for them, and so does a parameter times −∞ in its gradient."""
    q, k, v = inputs(4, 4)
    padding = torch.tensor([[True] * 4, [False, False, True, False]])
    normalizer = OwnSoftmax()
    output, weights = normalizer(
        AttentionInputs(q, k, v, 1.0, padding, causal=True, need_weights=True), "auto"
    )
    assert (output[0] == 0).all() and (weights[0] == 0).all()
    *grads, of_parameter = torch.autograd.grad(output.square().sum(), (q, k, v, *normalizer.parameters()))
    assert of_parameter.isfinite().all() and of_parameter.any()
    expected = torch.nn.functional.scaled_dot_product_attention(
        q[1:], k[1:], v[1:], ~padding[1] & torch.ones(4, 4, dtype=torch.bool).tril()
    )
    torch.testing.assert_close(output[1:], expected)
    for actual, exact in zip(grads, torch.autograd.grad(expected.square().sum(), (q, k, v))):
        torch.testing.assert_close(actual, exact)


# ------------------------------------------------------------------------------- rectified attention


def rela_by_loops(q, k, v, hidden):
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
    expected = rela_by_loops(q, k, v, lambda b, t, s: (causal and s > t) or (padded and bool(padding[b, s])))
    torch.testing.assert_close(output, expected[0], **MODEL_TOLERANCE)
    torch.testing.assert_close(weights, expected[1], **MODEL_TOLERANCE)
    assert (weights == 0).any()


def test_additive_masks_and_gradients():
    q, k, v = inputs(2, 3)
    mask = torch.tensor([[0.0, -math.inf, 0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *qkv: rela(*qkv, attn_mask=mask)[0], (q, k, v))
    assert rela(q, k, v, attn_mask=mask)[1] is None


def test_the_norm_equals_its_formula():
    norm = GatedRMSNorm(6).double()
    norm.scale.data.uniform_(0.5, 2)
    x = torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True)
    for row, normed in zip(x.view(-1, 6), norm(x).view(-1, 6)):
        rms = math.sqrt(sum(float(value) ** 2 for value in row) / 6)
        for value, scale, gate, actual in zip(row, norm.scale, norm.gate, normed):
            expected = float(scale * value) / rms / (1 + math.exp(-float(gate * value)))
            assert float(actual) == pytest.approx(expected, rel=1e-6)
    assert torch.autograd.gradcheck(norm, x)
    assert not norm(torch.zeros(2, 6)).any()
    assert norm.float()(torch.full((1, 6), 300.0, dtype=torch.float16)).isfinite().all()


# -------------------------------------------------------------------------------- fixed patterns

LIKE = torch.zeros(1, dtype=torch.float64)


def patterns_by_loops(n):
    """The seven patterns of a sentence of n tokens, (7, n, n), by their definitions."""
    patterns = torch.zeros(7, n, n, dtype=torch.float64)
    for i in range(n):
        patterns[0, i, i] = 1
        if i > 0:
            patterns[1, i, i - 1] = 1
        if i + 1 < n:
            patterns[2, i, i + 1] = 1
        for number, keys, value in (
            (3, range(0, i - 1), lambda j: (j + 1) ** 3),
            (4, range(i + 2, n), lambda j: (n - j) ** 3),
            (5, range(n), lambda j: (j + 1) ** 3),
            (6, range(n), lambda j: (n - j) ** 3),
        ):
            total = sum(value(j) for j in keys)
            for j in keys:
                patterns[number, i, j] = value(j) / total
    return patterns


@pytest.mark.parametrize("n", (1, 2, 3, 7))
def test_without_padding(n):
    patterns = fixed_patterns(None, n, len(PATTERNS), LIKE)
    torch.testing.assert_close(patterns, patterns_by_loops(n)[None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("left", (True, False))
def test_padding_on_either_side(left):
    lengths = (6, 4, 1)
    mask = torch.arange(6) >= torch.tensor(lengths)[:, None]
    patterns = fixed_patterns(mask.flip(1) if left else mask, 6, 7, LIKE)
    for sentence, n in zip(patterns, lengths):
        inside = slice(6 - n, 6) if left else slice(0, n)
        torch.testing.assert_close(sentence[:, inside, inside], patterns_by_loops(n), rtol=1e-12, atol=1e-12)
        assert sentence.sum() == pytest.approx(patterns_by_loops(n).sum().item())


def test_fewer_heads_and_long_sentences_in_half_precision():
    assert fixed_patterns(None, 5, 3, LIKE).shape == (1, 3, 5, 5)
    patterns = fixed_patterns(None, 1000, 7, torch.zeros(1, dtype=torch.float16))
    assert patterns.dtype == torch.float16 and patterns.isfinite().all()
    assert patterns[0, 5].double().sum(-1).sub(1).abs().max() < 1e-2
