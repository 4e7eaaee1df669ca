"""Scores, α and masks of any shape: as the oracle has it, or a ValueError that names the value."""

from __future__ import annotations

import math

import hypothesis
import pytest
import torch
from helpers import assert_within, entmax_oracle, weight_tolerance
from hypothesis import strategies as st
from search import limited, search

from user_dir.attention import attention
from user_dir.entmax import attention_weights, entmax
from user_dir.entmax.masks import hide

SIZES = st.sampled_from((0, 1, 2, 3, 5, 9))
# Nearer to 1, the oracle is not exact; tests/entmax/test_op.py has another there.
GOOD = st.one_of(st.floats(1.05, 2), st.sampled_from((1.0, 1.5, 2.0, 2.5)))
ALPHAS = st.one_of(GOOD, GOOD, GOOD, st.sampled_from((0.999, 0.0, -1.0, math.nan, math.inf, -math.inf)))
DTYPES = st.sampled_from((torch.float32, torch.float64))


def numbers(shape, dtype, seed: int, hidden: float = 0.1):
    """Scores, some of which are −inf."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores.masked_fill(torch.rand(shape, generator=generator) < hidden, -math.inf).to(dtype)


@search(200)
@hypothesis.given(
    st.lists(SIZES, max_size=4),
    st.lists(SIZES, max_size=4),
    ALPHAS,
    st.integers(-5, 4),
    DTYPES,
    st.integers(0, 99),
    st.booleans(),
)
def test_entmax_of_any_shapes(shape, alpha_shape, value, dim, dtype, seed, fits):
    scores = numbers(shape, dtype, seed)
    if fits and shape:  # of shapes by chance, hardly any would
        dim = dim % len(shape)
        alpha_shape = [size if seed >> i & 1 else 1 for i, size in enumerate(shape)]
        alpha_shape[dim] = 1
    alpha = torch.full(alpha_shape, value, dtype=torch.float64)
    try:
        with limited():
            weights = entmax(scores, alpha, dim)
    except ValueError as error:
        assert any(part in str(error) for part in (f"{value:g}", str(tuple(alpha_shape)), f"dim {dim}"))
        assert not (fits and shape and 1 <= value < math.inf), error
        return
    assert weights.shape == scores.shape and weights.dtype == dtype
    assert not weights.numel() or 1 <= value < math.inf
    if weights.numel():
        expected = entmax_oracle(scores, alpha, dim)
        assert_within(weights, expected, weight_tolerance(expected, scores, alpha, dim), "weights")


@search(200)
@hypothesis.given(
    st.tuples(*[st.sampled_from((1, 2, 3))] * 2, *[st.sampled_from((1, 2, 3, 7))] * 2),
    ALPHAS,
    st.sampled_from(("number", "one", "heads", "wrong")),
    st.sampled_from((None, "bool", "numbers", "future", "wrong", "integers")),
    st.sampled_from((None, "some", "all", "wrong")),
    st.booleans(),
    DTYPES,
    st.integers(0, 99),
    st.booleans(),
)
def test_attention_under_any_masks(shape, value, kind, mask, padding, causal, dtype, seed, need_weights):
    batch, heads, queries, keys = shape
    keys = queries if causal else keys
    depth = 4
    query, key, content = (
        numbers((batch, heads, length, depth), dtype, seed + i, hidden=0)
        for i, length in enumerate((queries, keys, keys))
    )
    shapes = {"one": (1, 1, 1), "heads": (heads, 1, 1), "wrong": (heads + 1, 1, 1)}
    alpha = value if kind == "number" else torch.full(shapes[kind], value, dtype=torch.float64)
    chance = torch.rand(queries + (mask == "wrong"), keys, generator=torch.Generator().manual_seed(seed))
    attn_mask = {
        "bool": chance < 0.3,
        "numbers": 2 * chance.to(dtype) - 1,
        "future": torch.full((queries, keys), -math.inf, dtype=dtype).triu(1),
        "wrong": chance < 0.3,
        "integers": (chance < 0.3).to(torch.int64),  # visible keys, or a summand? It could be either
    }.get(mask)
    hidden = {"some": 0.4, "all": 1.1, "wrong": 0.4}.get(padding)
    columns = keys + (padding == "wrong")
    key_padding_mask = None
    if hidden is not None:
        key_padding_mask = torch.rand(batch, columns, generator=torch.Generator().manual_seed(seed)) < hidden

    wrong_shape = mask == "integers" or (
        "wrong" in (kind, mask, padding) and not (kind == "wrong" and heads + 1 == 1)
    )
    try:
        with limited():
            output, weights = attention(
                query, key, content, alpha, key_padding_mask, attn_mask, causal, need_weights=need_weights
            )
    except ValueError as error:
        assert wrong_shape or not 1 <= value < math.inf, error
        assert any(part in str(error) for part in (f"{value:g}", f"{value}", "shape", "int64")), error
        return
    assert not wrong_shape, "what does not fit was taken"
    assert 1 <= value < math.inf
    scores = hide((query * depth**-0.5) @ key.transpose(-2, -1), key_padding_mask, attn_mask, causal)
    oracle_alpha = torch.as_tensor(value, dtype=torch.float64)
    expected = entmax_oracle(scores, oracle_alpha)
    tolerance = weight_tolerance(expected, scores, oracle_alpha) + 4 * torch.finfo(dtype).eps
    if need_weights:
        assert_within(weights, expected, tolerance, "weights")
    largest = content.double().abs().amax((-2, -1), keepdim=True)
    assert_within(
        output, expected @ content.double(), 8 * largest * tolerance.sum(-1, keepdim=True), "output"
    )
    also = attention_weights(scores, alpha)
    assert_within(also, expected, tolerance, "attention_weights")


@pytest.mark.parametrize("scores", [torch.ones(2, dtype=torch.long), torch.ones(2, dtype=torch.complex64)])
def test_scores_that_are_no_reals(scores):
    with pytest.raises(ValueError, match="floating dtype, not torch"):
        entmax(scores, 1.5)
