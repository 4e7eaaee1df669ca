"""The attention module, compared with fairseq's and, in incremental decoding, with itself."""

import pytest
import torch
from fairseq.modules import MultiheadAttention
from helpers import covering

from user_dir.attention import Alpha, AlphaConfig
from user_dir.entmax import entmax
from user_dir.models import EntmaxMultiheadAttention, causal_mask

pytestmark = pytest.mark.usefixtures("stock_in_full_precision")

CHANNELS, HEADS, BATCH = 16, 4, 3
INF = float("inf")
CLOSE = {"rtol": 1e-10, "atol": 1e-12}

KINDS = {
    "self": {"self_attention": True},
    "context": {"encoder_decoder_attention": True, "kdim": 12, "vdim": 12},
    "general": {"kdim": 12, "vdim": 10},
}


def module(kind="self", alpha=None, seed=1, **settings):
    torch.manual_seed(seed)
    made = EntmaxMultiheadAttention(CHANNELS, HEADS, **KINDS[kind], **settings).double()
    if alpha is not None:
        made.alpha = Alpha(HEADS, alpha)
    return made


def learned(kind="self", **settings):
    """Heads from nearly softmax to nearly sparsemax."""
    made = module(kind, AlphaConfig(), **settings)
    with torch.no_grad():
        made.alpha.a.copy_(torch.tensor([-6.0, -1.0, 0.5, 5.0]))
    return made


def pair(kind, alpha=None, **settings):
    """Our module at α = 1 and fairseq's with the same weights."""
    ours = module(kind, alpha, **settings)
    stock = MultiheadAttention(CHANNELS, HEADS, **KINDS[kind], **settings).double()
    stock.load_state_dict(ours.state_dict())
    return ours, stock


def inputs(kind, queries=5, keys=6, batch=BATCH):
    query = torch.randn(queries, batch, CHANNELS, dtype=torch.float64)
    if kind == "self":
        return query, query, query
    key = torch.randn(keys, batch, 12, dtype=torch.float64)
    return query, key, key if kind == "context" else torch.randn(keys, batch, 10, dtype=torch.float64)


def padding_mask(side, keys):
    mask = torch.zeros(BATCH, keys, dtype=torch.bool)
    for row, padded in enumerate((0, 2, keys - 1)):
        if padded:
            mask[row, slice(None, padded) if side == "left" else slice(-padded, None)] = True
    return mask


def with_gradients(attention, query, key, value, **options):
    """Output, weights, and the gradients of distinct inputs and of all parameters."""
    leaves = {}
    for x in (query, key, value):
        leaves.setdefault(id(x), x.clone().requires_grad_())
    attention.zero_grad()
    output, weights = attention(*(leaves[id(x)] for x in (query, key, value)), **options)
    torch.manual_seed(3)
    total = (output * torch.randn_like(output)).sum()
    if weights is not None:
        total = total + (weights * torch.randn(weights.shape, dtype=torch.float64)).sum()
    total.backward()
    gradients = {f"input {i}": leaf.grad for i, leaf in enumerate(leaves.values())}
    gradients.update({name: parameter.grad for name, parameter in attention.named_parameters()})
    return output, weights, gradients


def assert_same(ours, theirs):
    torch.testing.assert_close(ours[0], theirs[0], **CLOSE)
    assert (ours[1] is None) == (theirs[1] is None)
    if theirs[1] is not None:
        torch.testing.assert_close(ours[1], theirs[1], check_dtype=False, rtol=1e-6, atol=1e-7)
    assert ours[2].keys() == theirs[2].keys()
    # weights, if requested, are in float32
    close = {"rtol": 1e-9, "atol": 1e-11} if ours[1] is None else {"rtol": 1e-6, "atol": 1e-6}
    for name, gradient in theirs[2].items():
        torch.testing.assert_close(ours[2][name], gradient, **close, msg=lambda m, n=name: f"{n}: {m}")


# --------------------------------------------------------------------------- at α = 1, stock fairseq


BOTH = (False, True)


# The stock module has two implementations: torch's, and fairseq's.
@pytest.mark.parametrize(
    "case",
    covering(
        path=("torch", "fairseq"), kind=KINDS, padding=(None, "left", "right"), mask=BOTH, need_weights=BOTH
    ),
)
def test_equals_stock(case):
    path, kind, side, masked, need_weights = case.values()
    ours, stock = pair(kind)
    stock.skip_embed_dim_check = path == "fairseq"  # selects the implementation
    query, key, value = inputs(kind)
    options = {"need_weights": need_weights}
    if side is not None:
        options["key_padding_mask"] = padding_mask(side, key.size(0))
    if masked:
        mask = torch.randn(query.size(0), key.size(0), dtype=torch.float64)
        hidden = torch.rand(mask.shape) < 0.3
        hidden[:, 0] = hidden[:, -1] = False  # leaves every query a key despite padding
        options["attn_mask"] = mask.masked_fill(hidden, -INF)
    assert_same(
        with_gradients(ours, query, key, value, **options),
        with_gradients(stock, query, key, value, **options),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_head_weights_equal_stock(kind):
    ours, stock = pair(kind)
    stock.skip_embed_dim_check = True
    query, key, value = inputs(kind)
    mask = torch.randn(query.size(0), key.size(0), dtype=torch.float64)
    options = {"attn_mask": mask, "key_padding_mask": padding_mask("left", key.size(0))}
    output, weights = ours(query, key, value, need_head_weights=True, **options)
    expected, expected_weights = stock(query, key, value, need_head_weights=True, **options)
    torch.testing.assert_close(output, expected, **CLOSE)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, expected_weights.float(), rtol=0, atol=1e-6)
    mean = ours(query, key, value, need_weights=True, **options)[1]
    torch.testing.assert_close(mean, weights.mean(0))


def test_incremental_decoding_equals_stock():
    ours, stock = pair("self")
    query, _, _ = inputs("self")
    states = {}, {}
    for t in range(5):
        step = query[t : t + 1]
        outputs = [m(step, step, step, incremental_state=s) for m, s in zip((ours, stock), states)]
        torch.testing.assert_close(outputs[0][0], outputs[1][0], **CLOSE)
    for mine, theirs in zip(*(s.values() for s in states)):
        torch.testing.assert_close(mine["prev_key"], theirs["prev_key"], **CLOSE)
        torch.testing.assert_close(mine["prev_value"], theirs["prev_value"], **CLOSE)


# ------------------------------------------------------------------------------ learned α


def test_each_head_has_its_alpha():
    attention = learned()
    query, key, value = inputs("self", queries=40)
    _, weights = attention(3 * query, key, value, need_head_weights=True)
    density = (weights > 0).double().mean((1, 2, 3))
    assert density[0] > density[1] > density[2] > density[3]
    assert density[0] > 0.99 and density[3] < 0.5
    attention(query, key, value)[0].square().sum().backward()
    assert attention.alpha.a.grad.shape == (HEADS,) and (attention.alpha.a.grad != 0).all()


def test_the_causal_mask_equals_a_triangular_mask():
    attention = learned()
    query, _, _ = inputs("self")
    padding = padding_mask("left", 5)
    triangle = torch.full((5, 5), -INF, dtype=torch.float64).triu(1)
    for options in ({"key_padding_mask": padding}, {"need_head_weights": True}):
        actual = attention(query, query, query, attn_mask=causal_mask(query), **options)
        expected = attention(query, query, query, attn_mask=triangle, **options)
        torch.testing.assert_close(actual, expected, **CLOSE)
    masks = ({"attn_mask": mask} for mask in (causal_mask(query), triangle))
    assert_same(*(with_gradients(attention, query, query, query, **mask) for mask in masks))


def test_any_other_mask_is_added():
    attention = learned()
    query, _, _ = inputs("self")
    for mask in (torch.full((5, 5), -INF).triu(1), torch.full((5, 5), -INF).tril(-1), torch.randn(5, 5)):
        mask = mask.double()
        _, weights = attention(query, query, query, attn_mask=mask, need_head_weights=True)
        q, k = (attention._split_heads(project(query)) for project in (attention.q_proj, attention.k_proj))
        scores = q @ k.transpose(2, 3) / 2 + mask
        expected = entmax(scores, attention.alpha().double()).transpose(0, 1)
        torch.testing.assert_close(weights, expected.float())


@pytest.mark.parametrize("side", (None, "left", "right"))
def test_steps_equal_full_decoding(side):
    attention = learned().eval()
    query, _, _ = inputs("self")
    padding = None if side is None else padding_mask(side, 5)
    triangle = torch.full((5, 5), -INF, dtype=torch.float64).triu(1)
    full, full_weights = attention(
        query, query, query, attn_mask=triangle, key_padding_mask=padding, need_head_weights=True
    )
    state = {}
    for t in range(5):
        step = query[t : t + 1]
        output, weights = attention(
            step,
            step,
            step,
            key_padding_mask=None if padding is None else padding[:, t : t + 1],
            incremental_state=state,
            need_head_weights=True,
        )
        torch.testing.assert_close(output[0], full[t], **CLOSE)
        torch.testing.assert_close(weights[:, :, 0], full_weights[:, :, t, : t + 1])


@pytest.mark.parametrize("side", (None, "left"))
def test_cached_context_equals_fresh_context(side):
    attention = learned("context").eval()
    query, key, _ = inputs("context")
    padding = None if side is None else padding_mask(side, 6)
    full, full_weights = attention(query, key, key, key_padding_mask=padding)
    state = {}
    for t in range(5):
        # from the second step on, only the cache matters
        source = key if t == 0 else torch.full_like(key, float("nan"))
        output, weights = attention(
            query[t : t + 1],
            source,
            source,
            key_padding_mask=padding,
            incremental_state=state,
            static_kv=True,
        )
        torch.testing.assert_close(output[0], full[t], **CLOSE)
        torch.testing.assert_close(weights[:, 0], full_weights[:, t])


def test_reordering_follows_the_hypotheses():
    attention = learned().eval()
    query, _, _ = inputs("self", queries=4)
    order = torch.tensor([2, 2, 0])
    state = {}
    for t in range(3):
        attention(query[t : t + 1], None, None, incremental_state=state)
    attention.reorder_incremental_state(state, order)
    output, _ = attention(query[3:], None, None, incremental_state=state)
    history = torch.cat([query[:3, order], query[3:]])
    full, _ = attention(history, history, history, attn_mask=torch.full((4, 4), -INF).triu(1).double())
    torch.testing.assert_close(output[0], full[3], **CLOSE)


BEAM = 2


@pytest.mark.parametrize("case", covering(side=(None, "left"), queries=(1, 3), once=BOTH))
def test_beam_folding_changes_nothing(case):
    side, queries, once = case.values()
    attention = learned("context").eval()
    query = torch.randn(queries, BATCH * BEAM, CHANNELS, dtype=torch.float64)
    key = torch.randn(6, BATCH, 12, dtype=torch.float64)
    repeated = key.repeat_interleave(BEAM, dim=1)
    padding = None if side is None else padding_mask(side, 6)
    repeated_padding = None if padding is None else padding.repeat_interleave(BEAM, dim=0)

    def attend(key, padding, **options):
        return attention(query, key, key, key_padding_mask=padding, **options)

    expected = attend(repeated, repeated_padding, need_head_weights=True)
    attention.set_beam_size(BEAM)
    # "once": the keys are already given once per sentence
    source = (key, padding) if once else (repeated, repeated_padding)
    state = {}
    for call in (
        attend(*source, need_head_weights=True),
        attend(*source, need_head_weights=True, incremental_state=state, static_kv=True),
        attend(None, None, need_head_weights=True, incremental_state=state, static_kv=True),
    ):
        torch.testing.assert_close(call[0], expected[0], **CLOSE)
        torch.testing.assert_close(call[1], expected[1])
    torch.testing.assert_close(attend(*source)[1], expected[1].mean(0))
    (saved,) = state.values()
    assert saved["prev_key"].size(0) == BATCH


def test_beam_folding_survives_reordering():
    attention = learned("context").eval()
    key = torch.randn(6, BATCH, 12, dtype=torch.float64).repeat_interleave(BEAM, dim=1)
    query = torch.randn(1, BATCH * BEAM, CHANNELS, dtype=torch.float64)
    attention.set_beam_size(BEAM)
    state = {}
    attention(query, key, key, incremental_state=state, static_kv=True)
    # hypotheses are reordered within their sentence, then the middle sentence is finished and removed
    for order in (torch.tensor([1, 0, 2, 2, 5, 4]), torch.tensor([0, 1, 4, 5])):
        attention.reorder_incremental_state(state, order)
        key, query = key[:, order], query[:, order]
        output, _ = attention(query, key, key, incremental_state=state, static_kv=True)
        attention.set_beam_size(1)
        expected, _ = attention(query, key, key)
        attention.set_beam_size(BEAM)
        torch.testing.assert_close(output, expected, **CLOSE)


def test_fully_padded_sentence_attends_to_nothing():
    for attention in (learned("context"), module("context")):
        query, key, _ = inputs("context")
        padding = torch.zeros(BATCH, 6, dtype=torch.bool)
        padding[1] = True
        output, weights = attention(query, key, key, key_padding_mask=padding)
        output.square().sum().backward()
        assert (weights[1] == 0).all() and (weights[0].sum(-1) - 1).abs().max() < 1e-6
        torch.testing.assert_close(output[:, 1], attention.out_proj.bias.expand(5, CHANNELS))
        assert all(torch.isfinite(parameter.grad).all() for parameter in attention.parameters())


def test_dropout_only_in_training():
    attention = learned(dropout=0.5)
    query, key, value = inputs("self")
    assert not torch.equal(attention(query, key, value)[0], attention(query, key, value)[0])
    attention.eval()
    without = learned()
    assert torch.equal(attention(query, key, value)[0], without(query, key, value)[0])
    # the returned weights are those before dropout
    attention.train()
    assert torch.equal(attention(query, key, value)[1], without(query, key, value)[1])
