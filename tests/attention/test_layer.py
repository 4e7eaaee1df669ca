"""EntmaxAttention beside PyTorch's own layer, which it equals at α = 1, and beside attention on tensors."""

import copy
import inspect

import pytest
import torch
from helpers import MODEL_TOLERANCE, covering, entmax_oracle
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from user_dir.attention import AlphaConfig, EntmaxAttention

CHANNELS, HEADS, BATCH, QUERIES, KEYS = 12, 3, 2, 5, 7
ALPHAS = torch.tensor([1.1, 1.5, 1.9], dtype=torch.float64)
LEARNED = AlphaConfig()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, **MODEL_TOLERANCE)


def layers(alpha=1.0, **options):
    """PyTorch's layer, and ours with the same parameters; biases are not 0."""
    torch.manual_seed(1)
    stock = nn.MultiheadAttention(CHANNELS, HEADS, dtype=torch.float64, **options)
    for parameter in stock.parameters():
        nn.init.normal_(parameter, std=0.5)
    return stock, EntmaxAttention.from_multihead_attention(copy.deepcopy(stock), alpha)


def inputs(batch_first=False, batched=True, kdim=None, vdim=None, keys=KEYS):
    shapes = ((QUERIES, CHANNELS), (keys, kdim or CHANNELS), (keys, vdim or CHANNELS))
    drawn = [torch.randn(BATCH, *shape, dtype=torch.float64) for shape in shapes]
    if not batched:
        return [x[0].requires_grad_() for x in drawn]
    return [(x if batch_first else x.transpose(0, 1).contiguous()).requires_grad_() for x in drawn]


def mask_of(kind, *shape):
    if kind is None:
        return None
    mask = torch.rand(shape) < 0.4
    mask[..., 1] = False
    hidden = torch.zeros(shape, dtype=torch.float64).masked_fill(mask, float("-inf"))
    return {"bool": mask, "-inf": hidden, "float": hidden + torch.randn(shape, dtype=torch.float64)}[kind]


SETTINGS = {
    "batch_first": (False, True),
    "batched": (True, False),
    "bias": (True, False),
    "dims": ((None, None), (8, 9)),
    "padding": (None, "bool", "-inf", "float"),
    "mask": (None, "bool", "-inf", "float", "3D"),
    "average": (True, False, None),
}


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("case", covering(**SETTINGS))
def test_with_alpha_1_outputs_weights_and_gradients_are_those_of_pytorch(case):
    (kdim, vdim), average = case["dims"], case["average"]
    stock, ours = layers(kdim=kdim, vdim=vdim, batch_first=case["batch_first"], bias=case["bias"])
    qkv = inputs(case["batch_first"], case["batched"], kdim, vdim)
    batch = (BATCH,) if case["batched"] else ()
    heads = HEADS * (BATCH if case["batched"] else 1)
    shape = (heads, QUERIES, KEYS) if case["mask"] == "3D" else (QUERIES, KEYS)
    options = {
        "key_padding_mask": mask_of(case["padding"], *batch, KEYS),
        "attn_mask": mask_of("bool" if case["mask"] == "3D" else case["mask"], *shape),
        "need_weights": average is not None,
        "average_attn_weights": average is not False,
    }
    actual, expected = ours(*qkv, **options), stock(*qkv, **options)
    close(actual, expected)
    grads = []
    for output, weights in (actual, expected):
        loss = output.square().sum() + (0 if weights is None else (weights**3).sum())
        module = ours if output is actual[0] else stock
        grads.append(torch.autograd.grad(loss, [*qkv, *(p for n, p in module.named_parameters())]))
    close(*grads)


@pytest.mark.parametrize("batch_first", (False, True))
def test_each_head_has_the_weights_of_its_alpha(batch_first):
    _, layer = layers(LEARNED, batch_first=batch_first, bias=False)
    layer.alpha.a.data = torch.logit(ALPHAS - 1)
    qkv, padding = inputs(batch_first), torch.zeros(BATCH, KEYS, dtype=torch.bool)
    padding[0, -3:] = True
    output, weights = layer(*qkv, key_padding_mask=padding, average_attn_weights=False)
    q, k, v = (x if batch_first else x.transpose(0, 1) for x in qkv)
    w_q, w_k, w_v = layer.in_proj_weight.chunk(3)
    for i in range(BATCH):
        outputs = []
        for h in range(HEADS):
            rows = slice(4 * h, 4 * h + 4)
            scores = (q[i] @ w_q[rows].T) @ (k[i] @ w_k[rows].T).T / 2
            expected = entmax_oracle(scores.masked_fill(padding[i], float("-inf")), layer.alpha()[h].item())
            torch.testing.assert_close(weights[i, h], expected, rtol=0, atol=1e-9)
            outputs.append(expected @ (v[i] @ w_v[rows].T))
        expected = torch.cat(outputs, -1) @ layer.out_proj.weight.T
        actual = output[i] if batch_first else output[:, i]
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-8)
    assert (weights[0, 2] == 0).sum() > (weights[0, 0] == 0).sum()


def test_gradients_of_all_parameters_and_alpha():
    _, layer = layers(LEARNED)
    parameters = {name: parameter.detach().requires_grad_() for name, parameter in layer.named_parameters()}

    def call(*values):
        query, key, value, *others = values
        changed = dict(zip(parameters, others))
        return torch.func.functional_call(layer, changed, (query, key, value))[0]

    assert torch.autograd.gradcheck(call, (*inputs(), *parameters.values()), fast_mode=True)


def test_causal_without_a_mask():
    _, layer = layers(1.5, batch_first=True)
    query, *others = inputs(True, keys=QUERIES)
    mask = torch.ones(QUERIES, QUERIES).triu(1).bool()
    expected = layer(query, *others, attn_mask=mask)
    close(layer(query, *others, is_causal=True), expected)
    close(layer(query, *others, attn_mask=mask, is_causal=True), expected)
    close(layer(query, *others, is_causal=True, need_weights=False)[0], expected[0])
    with pytest.raises(ValueError, match="as many queries"):
        layers(1.5)[1](*inputs(), is_causal=True)


def test_a_query_without_keys_attends_to_nothing():
    _, layer = layers(1.5)
    padding = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    padding[1] = True
    output, weights = layer(*inputs(), key_padding_mask=padding)
    assert (weights[1] == 0).all() and weights[0].sum() > 1
    close(output[:, 1], layer.out_proj.bias.expand(QUERIES, -1))


def test_dropout_only_in_training_and_not_of_the_weights_returned():
    _, layer = layers(1.5, dropout=0.5)
    qkv = inputs()
    (dropped, weights), (output, expected) = layer(*qkv), layer.eval()(*qkv)
    close(weights, expected)
    assert not torch.allclose(dropped, output)
    close(layer(*qkv)[0], output)


def test_the_constructor_has_the_arguments_of_pytorch():
    own, theirs = (
        list(inspect.signature(cls).parameters) for cls in (EntmaxAttention, nn.MultiheadAttention)
    )
    assert own == [*theirs, "alpha"]
    for keys in ("add_bias_kv", "add_zero_attn"):
        with pytest.raises(ValueError, match=keys):
            EntmaxAttention.from_multihead_attention(nn.MultiheadAttention(CHANNELS, HEADS, **{keys: True}))
    layer = nn.utils.skip_init(EntmaxAttention, CHANNELS, HEADS, batch_first=True)
    assert layer.batch_first and layer.in_proj_weight.device.type == "cpu"


def test_alpha_is_constant_learned_or_scheduled():
    assert EntmaxAttention(CHANNELS, HEADS, alpha=1.5).alpha.value() == 1.5
    assert EntmaxAttention(CHANNELS, HEADS).alpha.a.shape == (HEADS,)
    started = EntmaxAttention(CHANNELS, HEADS, alpha=AlphaConfig(alpha_init=1.3))
    torch.testing.assert_close(started.alpha(), torch.full((HEADS, 1, 1), 1.3))
    annealed = AlphaConfig(alpha_schedule="linear", alpha_schedule_end=2.0, alpha_schedule_updates=10)
    layer = EntmaxAttention(CHANNELS, HEADS, alpha=annealed)
    layer.alpha.set_num_updates(5)
    assert layer.alpha.value() == 1.5
    for alpha in (0.5, AlphaConfig(attention_normalizer="rela")):
        with pytest.raises(ValueError, match=r"0\.5|rela"):
            EntmaxAttention(CHANNELS, HEADS, alpha=alpha)


def test_state_is_that_of_pytorch_and_parameters_are_taken_over():
    stock = nn.MultiheadAttention(CHANNELS, HEADS)
    stock.in_proj_weight.requires_grad = False
    layer = EntmaxAttention.from_multihead_attention(stock.eval())
    assert set(layer.state_dict()) == {*stock.state_dict(), "alpha.a"} and not layer.training
    assert all(layer.get_parameter(name) is p for name, p in stock.named_parameters())
    fixed = EntmaxAttention(CHANNELS, HEADS, alpha=1.5)
    fixed.load_state_dict(stock.state_dict())
    assert torch.equal(fixed.in_proj_weight, stock.in_proj_weight)
    with pytest.raises(RuntimeError, match=r"alpha\.a"):  # a learned α is not left at random in silence
        EntmaxAttention(CHANNELS, HEADS).load_state_dict(stock.state_dict())


@pytest.mark.parametrize("how", ("pruned", "weight-normed"))
def test_computed_parameters_are_refused(how):
    """The layer made of them had random projections."""
    stock = nn.MultiheadAttention(CHANNELS, HEADS)
    if how == "pruned":
        prune.l1_unstructured(stock, "in_proj_weight", 0.5)
    else:
        parametrizations.weight_norm(stock, "in_proj_weight")
    with pytest.raises(TypeError, match="parameter 'in_proj_weight'"):
        EntmaxAttention.from_multihead_attention(stock, alpha=1.0)
    if how == "pruned":
        prune.remove(stock, "in_proj_weight")
    else:
        parametrize.remove_parametrizations(stock, "in_proj_weight")
    layer, x = EntmaxAttention.from_multihead_attention(stock, alpha=1.0), torch.randn(5, 2, CHANNELS)
    close(layer(x, x, x)[0], stock(x, x, x)[0])


@pytest.mark.parametrize(
    "change, message",
    (
        ({"query": torch.zeros(BATCH, CHANNELS)}, "keys and values"),
        ({"value": torch.zeros(KEYS - 1, BATCH, CHANNELS)}, "keys and values"),
        ({"attn_mask": torch.zeros(QUERIES, KEYS + 1)}, r"\(5, 8\)"),
        ({"attn_mask": torch.zeros(QUERIES, KEYS).long()}, "int64"),
        ({"key_padding_mask": torch.zeros(KEYS, BATCH).bool()}, r"\(7, 2\)"),
        ({"key_padding_mask": torch.zeros(BATCH, KEYS).long()}, "int64"),
    ),
)
def test_arguments_that_do_not_fit(change, message):
    x = torch.zeros(QUERIES, BATCH, CHANNELS), *torch.zeros(2, KEYS, BATCH, CHANNELS)
    arguments = dict(zip(("query", "key", "value"), x))
    layer = EntmaxAttention(CHANNELS, HEADS)
    layer(**arguments)
    with pytest.raises(ValueError, match=message):
        layer(**{**arguments, **change})


# ------------------------------------------------------------------------- inside of PyTorch's layers


def without_gradients(model, *arguments, **options):
    with torch.inference_mode():
        return model.eval()(*arguments, **options)


def encoder_layer(alpha, heads=4):
    """PyTorch's layer with ours in it; 4 heads, because the fast path is for even numbers."""
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(CHANNELS, heads, 16, batch_first=True, dtype=torch.float64)
    if alpha is not None:
        layer.self_attn = EntmaxAttention.from_multihead_attention(layer.self_attn, alpha)
    return layer


def by_hand(layer, x, **options):
    """A post-norm encoder layer, with its self-attention called in the open."""
    x = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False, **options)[0])
    return layer.norm2(x + layer.linear2(torch.relu(layer.linear1(x))))


@pytest.mark.parametrize("padded", (False, True))
def test_an_encoder_layer_does_not_compute_softmax_past_it(padded):
    x, options = torch.randn(BATCH, KEYS, CHANNELS, dtype=torch.float64), {}
    if padded:
        options["src_key_padding_mask"] = torch.arange(KEYS) > torch.tensor([[3], [KEYS]])
    hidden = {"key_padding_mask": options.get("src_key_padding_mask")}
    ours, softmax, stock = (encoder_layer(alpha) for alpha in (2.0, 1.0, None))
    output = without_gradients(ours, x, **options)
    close(output, by_hand(ours, x, **hidden))
    expected = without_gradients(stock, x, **options)
    close(without_gradients(softmax, x, **options)[0, 0], expected[0, 0])
    assert not torch.allclose(output[0, 0], expected[0, 0], atol=1e-3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor")
@pytest.mark.parametrize("replaced", ("before", "after"))
def test_an_encoder_with_padding(replaced):
    """An encoder that was built before its layers' attention is replaced makes nested tensors."""
    encoder = nn.TransformerEncoder(encoder_layer(2.0 if replaced == "before" else None), 2)
    for layer in encoder.layers:
        if replaced == "after":
            layer.self_attn = EntmaxAttention.from_multihead_attention(layer.self_attn, 2.0)
    x, padding = torch.randn(BATCH, KEYS, CHANNELS, dtype=torch.float64), torch.zeros(BATCH, KEYS).bool()
    padding[0, 4:] = True
    assert encoder.use_nested_tensor == (replaced == "after")
    output, expected = without_gradients(encoder, x, src_key_padding_mask=padding), x
    for layer in encoder.layers:
        expected = by_hand(layer, expected, key_padding_mask=padding)
    close(output[~padding], expected[~padding])


# ------------------------------------------------------------------------------- compiled and exported


@pytest.mark.nightly  # tests of the operators compile attention
def test_compiles_without_breaks():
    layer = EntmaxAttention(CHANNELS, HEADS, batch_first=True)
    query, key, value = (x.detach().float().requires_grad_() for x in inputs(True))
    qkv = query, key, value
    padding = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    padding[0, -2:] = True
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for mask in (padding, torch.zeros(padding.shape).masked_fill(padding, float("-inf"))):
        actual, expected = (f(*qkv, key_padding_mask=mask) for f in (compiled, layer))
        torch.testing.assert_close(actual, expected)
        grads = [
            torch.autograd.grad(output.square().sum(), [query, *layer.parameters()])
            for output, _ in (actual, expected)
        ]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


def test_exports_with_lengths_that_vary():
    layer = EntmaxAttention(CHANNELS, HEADS, batch_first=True).eval()
    length = torch.export.Dim("length", max=500)
    padding = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    dims = {"query": None, "key": {1: length}, "value": {1: length}, "key_padding_mask": {1: length}}
    arguments = (*(x.detach().float() for x in inputs(True)), padding)
    exported = torch.export.export(layer, arguments, dynamic_shapes=dims).module()
    arguments = (*(x.detach().float() for x in inputs(True, keys=40)), torch.rand(BATCH, 40) < 0.3)
    torch.testing.assert_close(exported(*arguments), layer(*arguments), rtol=1e-4, atol=1e-5)
