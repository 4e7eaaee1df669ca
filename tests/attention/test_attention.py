"""Attention, dense and fused, against a loop over batch, heads and queries."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from helpers import covering, entmax_oracle
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from user_dir.attention import attention, cpu

INF = float("inf")
ALPHAS = torch.tensor([1.0, 1.3, 2.0], dtype=torch.float64).view(3, 1, 1)
TOLERANCE = {torch.float64: {"rtol": 0, "atol": 1e-12}, torch.float32: {"rtol": 0, "atol": 1e-5}}


@pytest.fixture(autouse=True, params=("dense", "fused"))
def backend(request, monkeypatch):
    """The backend; the fused kernel is used whenever possible, even for few queries."""
    if request.param == "dense":
        monkeypatch.setattr(cpu.KERNEL, "unsupported", lambda *args: "not asked for")
    else:
        monkeypatch.setattr(cpu, "MIN_QUERIES", 1)
        monkeypatch.setenv("ENTMAX_BACKEND", "native")
    return request.param


def inputs(queries, keys, batch=2, heads=3, dim=4, dtype=torch.float64):
    shapes = ((batch, heads, queries, dim), (batch, heads, keys, dim), (batch, heads, keys, dim))
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


def attention_by_loops(q, k, v, alpha, padding=None, mask=None, causal=False):
    """Computes each score separately in float64, and applies the entmax oracle."""
    batch, heads, queries, dim = q.shape
    keys = k.size(2)
    scores = torch.zeros(batch, heads, queries, keys, dtype=torch.float64)
    for b, h, t, s in itertools.product(*map(range, scores.shape)):
        score = sum(q[b, h, t, d].item() * k[b, h, s, d].item() for d in range(dim)) / dim**0.5
        hidden = (padding is not None and padding[b, s]) or (causal and s > t)
        if mask is not None and mask.dtype == torch.bool:
            hidden = hidden or mask[t, s]
        elif mask is not None:
            score += mask[t, s].item()
        scores[b, h, t, s] = -INF if hidden else score
    weights = entmax_oracle(scores, alpha)
    return weights @ v.double(), weights


def padding_mask(kind, batch, keys):
    if kind is None:
        return None
    mask = torch.zeros(batch, keys, dtype=torch.bool)
    rows = slice(None, keys // 2) if kind == "left" else slice(keys - keys // 2, None)
    mask[1, rows] = True
    return mask


def extra_mask(kind, queries, keys):
    if kind is None:
        return None
    if kind == "additive":
        mask = torch.randn(queries, keys, dtype=torch.float64)
        return mask.masked_fill(torch.rand(queries, keys) < 0.2, -INF)
    return torch.rand(queries, keys) < 0.3


DTYPES = (torch.float64, torch.float32)


@pytest.mark.parametrize(
    "case",
    covering(
        padding=(None, "left", "right"),
        mask=(None, "additive", "boolean"),
        size=((4, 4), (3, 6), (5, 1), (1, 5)),
        dtype=DTYPES,
    )
    + covering(
        padding=(None, "left", "right"),
        mask=(None, "additive"),
        size=((5, 5), (1, 1)),
        causal=(True,),
        dtype=DTYPES,
    ),
)
def test_against_loops(case, backend, taken):
    (queries, keys), dtype = case["size"], case["dtype"]
    q, k, v = inputs(queries, keys, dtype=dtype)
    padding = padding_mask(case["padding"], 2, keys)
    mask = extra_mask(case["mask"], queries, keys)
    mask = mask.to(dtype) if case["mask"] == "additive" else mask
    causal = case.get("causal", False)
    options = {"key_padding_mask": padding, "attn_mask": mask, "causal": causal}
    output, weights = attention(q, k, v, ALPHAS, need_weights=True, **options)
    expected, expected_weights = attention_by_loops(q, k, v, ALPHAS, padding, mask, causal)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(output.double(), expected, **TOLERANCE[dtype])
    torch.testing.assert_close(weights.double(), expected_weights, **TOLERANCE[dtype])
    assert attention(q, k, v, ALPHAS, **options)[1] is None
    assert set(taken) == {backend}


@pytest.mark.parametrize("alpha", (1.0, ALPHAS))
def test_queries_without_keys_get_zeros(alpha, backend):
    q, k, v = (x.requires_grad_() for x in inputs(3, 4))
    padding = torch.tensor([[True] * 4, [False, True, False, False]])
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1] = True
    options = {"key_padding_mask": padding, "attn_mask": mask, "need_weights": True, "backend": backend}
    output, weights = attention(q, k, v, alpha, **options)
    output.square().sum().backward()
    assert (output[0] == 0).all() and (output[1, :, 1] == 0).all() and (output[1, :, 0] != 0).all()
    assert (weights[0] == 0).all() and (weights[1, :, 1] == 0).all()
    for x in (q, k, v):
        assert torch.isfinite(x.grad).all() and (x.grad[0] == 0).all() and x.grad[1].abs().sum() > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"key_padding_mask": torch.tensor([[True, False, False], [False, False, True]])},
        {
            "attn_mask": torch.tensor(
                [[0.0, -1.0, 0.5], [-INF, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64
            )
        },
        {
            "attn_mask": torch.eye(3, dtype=torch.bool),
            "key_padding_mask": torch.tensor([[False, False, True]] * 2),
        },
    ],
    ids=str,
)
def test_gradcheck_of_query_key_value_and_alpha(options):
    q, k, v = (x.requires_grad_() for x in inputs(3, 3, dim=2))
    alpha = torch.tensor([1.01, 1.4, 1.8], dtype=torch.float64).view(3, 1, 1).requires_grad_()
    assert gradcheck(lambda *x: attention(*x, **options)[0], (q, k, v, alpha))
    assert gradcheck(lambda *x: attention(*x, need_weights=True, **options)[1], (q, k, v, alpha))


@pytest.mark.parametrize("alpha", (1.0, torch.ones(3, 1, 1)))
@pytest.mark.parametrize("causal", (False, True))
def test_at_alpha_one_equals_torch(alpha, causal, backend):
    q, k, v = (x.requires_grad_() for x in inputs(5, 5))
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    visible = ~padding[:, None, None, :]
    if causal:
        visible = visible & torch.ones(5, 5, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    output, _ = attention(q, k, v, alpha, key_padding_mask=padding, causal=causal, backend=backend)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-14)
    grad = torch.randn_like(output)
    ours = torch.autograd.grad(output, (q, k, v), grad)
    theirs = torch.autograd.grad(expected, (q, k, v), grad)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


def test_dropout_drops_weights_and_scales_the_rest():
    # Values are unit vectors, so the output is the row of weights that were used.
    q, k, _ = inputs(64, 50)
    v = torch.eye(50, dtype=torch.float64).expand(2, 3, 50, 50)
    output, weights = attention(q, k, v, ALPHAS, dropout=0.3, need_weights=True)
    _, undropped = attention(q, k, v, ALPHAS, need_weights=True)
    torch.testing.assert_close(weights, undropped, rtol=0, atol=1e-14)
    support = weights > 0
    kept = output > 0
    assert (kept <= support).all()
    torch.testing.assert_close(output[kept], weights[kept] / 0.7, rtol=1e-12, atol=0)
    count = support.sum().item()
    share = kept.sum().item() / count
    assert abs(share - 0.7) < 5 * (0.3 * 0.7 / count) ** 0.5


REFUSED = {
    "padding of integers": ({"key_padding_mask": torch.zeros(2, 3).long()}, "int64"),
    "padding of numbers": ({"key_padding_mask": torch.zeros(2, 3)}, "float32"),
    "padding of another batch": ({"key_padding_mask": torch.zeros(5, 3).bool()}, "key_padding_mask"),
    "five dimensions": ({"attn_mask": torch.zeros(1, 2, 3, 2, 3)}, "attn_mask"),
    "another length": ({"attn_mask": torch.zeros(3, 3)}, "attn_mask"),
    "a mask of integers": ({"attn_mask": torch.ones(2, 3).long()}, "boolean or floating, not torch.int64"),
    "a mask of small integers": ({"attn_mask": torch.ones(1, 3).to(torch.uint8)}, "not torch.uint8"),
    "a complex mask": ({"attn_mask": torch.ones(2, 3).to(torch.complex64)}, "not torch.complex64"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("alpha", [1.0, 1.5, ALPHAS])
def test_masks_that_do_not_fit_are_refused(case, alpha, backend):
    """Some would broadcast the scores to a larger shape, or be added to them instead of hiding keys."""
    (mask, words), (q, k, v) = REFUSED[case], inputs(2, 3)
    for asked in ("auto", backend):
        with pytest.raises(ValueError, match=words):
            attention(q, k, v, alpha, **mask, backend=asked)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_alpha_of_any_layout(dtype):
    q, k, v = inputs(5, 6)
    pairs = torch.tensor([[1.0, 9.0], [1.5, 0.5], [1.2, 3.0]], dtype=dtype)
    for alpha in (pairs[:, 0].view(3, 1, 1), torch.tensor(1.5, dtype=dtype).expand(3, 1, 1)):
        leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        output, _ = attention(*leaves, alpha)
        expected, _ = attention_by_loops(q, k, v, alpha.contiguous())
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-12)
        grads = torch.autograd.grad(output.sum(), leaves)
        others = torch.autograd.grad(attention(*leaves, alpha.contiguous())[0].sum(), leaves)
        assert all(map(torch.equal, grads, others))


def test_the_output_can_be_modified_in_place():
    leaves = [tensor.requires_grad_() for tensor in inputs(6, 6)]
    grads = []
    for change in (lambda output: output.mul_(2).add_(1), lambda output: output * 2 + 1):
        output = change(attention(*leaves, 1.5)[0])
        grads.append(torch.autograd.grad(output.square().sum(), leaves))
    for in_place, other in zip(*grads):
        torch.testing.assert_close(in_place, other)


def test_second_derivatives(backend):
    leaves = [tensor.requires_grad_() for tensor in inputs(3, 4, batch=1, heads=3, dim=2)]
    if backend == "dense":
        assert gradgradcheck(lambda *qkv: attention(*qkv, ALPHAS)[0], leaves)
        return
    output, _ = attention(*leaves, ALPHAS)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice; use the attention backend dense"):
        torch.autograd.grad(output.sum(), leaves, create_graph=True)


def test_forward_mode_is_refused():
    q, k, v = inputs(4, 4)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        attention(forward_ad.make_dual(q, torch.ones_like(q)), k, v, 1.5)


def test_autocast_has_no_effect():
    q, k, v = inputs(5, 6, dtype=torch.float32)
    expected, _ = attention(q, k, v, 1.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for queries in (1, 5):
            output, _ = attention(q[:, :, :queries], k, v, 1.5)
            torch.testing.assert_close(output, expected[:, :, :queries], rtol=0, atol=1e-6)
