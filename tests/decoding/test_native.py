"""The search in C++: its products, and that what it finds for a sentence depends on nothing else.

That it finds what fairseq does is tested in test_generator.py.
"""

import ctypes
import itertools

import pytest
import torch
from helpers import dictionary, peaked
from torch import nn

from user_dir.decoding import native, weights
from user_dir.decoding.native import Settings, kernels
from user_dir.decoding.weights import PackedLinear, Weights
from user_dir.entmax import native as build

PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"
DTYPES = (torch.float32, torch.float64)


# ------------------------------------------------------------------------------------------ products


def multiply(linear: PackedLinear, x: torch.Tensor, relu: bool = False) -> torch.Tensor:
    y = x.new_empty(len(x), linear.packed.outputs)
    address = ctypes.addressof(linear.packed)
    weights.kernels["multiply", x.dtype](address, x.data_ptr(), len(x), y.data_ptr(), relu)
    return y


def reference(layers, x, relu=False):
    weight = torch.cat([layer.weight for layer in layers]).double()
    bias = [torch.zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers]
    y = nn.functional.linear(x.double(), weight, torch.cat(bias).double()).detach()
    return y.relu() if relu else y


@pytest.fixture(params=("avx512", "avx2", "default"))
def instructions(request, monkeypatch):
    """The kernels as processors of this kind compile them."""
    has = build.capability().lower()
    order = ("default", "avx2", "avx512")
    if order.index(request.param) > order.index(has):
        pytest.skip(f"this processor has no {request.param}")
    if request.param != has:
        monkeypatch.setattr(build, "capability", request.param.upper)
        others = build.NativeKernels(kernels.source, with_torch=False, **kernels.signatures)
        monkeypatch.setattr(weights, "kernels", others)
    return request.param


def test_products_of_floats(instructions):
    for dtype in DTYPES:
        for inputs, outputs in ((1, 1), (3, 257), (67, 33), (130, 96), (300, 515)):
            layers = [nn.Linear(inputs, outputs), nn.Linear(inputs, 5, bias=False)]
            layers = [layer.to(dtype) for layer in layers]
            linear = PackedLinear(*layers)
            for relu, rows in itertools.product((False, True), (0, 1, 2, 3, 4, 5, 6, 7, 70)):
                x = torch.randn(rows, inputs, dtype=dtype)
                product, expected = multiply(linear, x, relu), reference(layers, x, relu)
                tolerance = 20 * torch.finfo(dtype).eps
                torch.testing.assert_close(product.double(), expected, rtol=0, atol=tolerance)


def test_integers_are_summed_exactly(instructions):
    """Where nothing is lost by rounding: 254 steps of x, and weights up to ±127."""
    for dtype, (inputs, outputs) in itertools.product(DTYPES, ((2, 3), (67, 33), (514, 130))):
        x = torch.randint(-100, 155, (11, inputs), dtype=dtype)
        x[:, 0], x[:, 1] = -100, 154
        x[0, 1:], x[1, 2:] = 154, -100  # only the greatest products tell whether 16 bits are enough
        layer = nn.Linear(inputs, outputs, bias=False).to(dtype)
        with torch.no_grad():
            layer.weight.copy_(torch.randint(-127, 128, (outputs, inputs)))
            layer.weight[0] = 127
            layer.weight[:, 0] = -127
        linear = PackedLinear(layer, int8=True)
        expected = reference([layer], x).to(dtype)
        fastest = linear.packed.instructions
        assert fastest in {"default": [0], "avx2": [1], "avx512": [1, 2]}[instructions]
        for linear.packed.instructions in range(fastest + 1):
            assert torch.equal(multiply(linear, x), expected), (instructions, linear.packed.instructions)


def test_int8_is_off_by_its_rounding_at_most(instructions):
    for dtype, (relu, bias) in itertools.product(DTYPES, ((True, False), (False, True))):
        layers = [nn.Linear(65, 40, bias=bias).to(dtype), nn.Linear(65, 8, bias=bias).to(dtype)]
        with torch.no_grad():
            layers[1].weight.mul_(100)  # outputs have scales of their own
        x = torch.randn(30, 65, dtype=dtype) * torch.logspace(-9, 9, 30, dtype=dtype)[:, None]  # and rows
        x[5], x[6] = 0, x[6].abs()
        product = multiply(PackedLinear(*layers, int8=True), x, relu)
        weight = torch.cat([layer.weight for layer in layers]).detach().abs()
        # half a step of x, and of each weight, of which there are 127 up to the largest
        step = (x.amax(1).clamp(min=0) - x.amin(1).clamp(max=0))[:, None] / 254
        bound = step / 2 * weight.sum(1) + weight.amax(1) / 254 * (x.abs().sum(1)[:, None] + 65 * step)
        off = (product - reference(layers, x, relu)).abs()
        assert (off <= 1.05 * bound + 1e-5).all() and off.max() > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_stay(dtype):
    layer = nn.Linear(21, 40).to(dtype)
    exact, rounded = PackedLinear(layer), PackedLinear(layer, int8=True)
    x = torch.randn(9, 21, dtype=dtype)
    clean = multiply(rounded, x)
    x[2, 20], x[5, 0], x[7, 3] = torch.nan, torch.inf, -torch.inf
    product = multiply(exact, x).double()
    torch.testing.assert_close(product, reference([layer], x), rtol=0, atol=1e-5, equal_nan=True)
    broken = torch.zeros(9, dtype=torch.bool)
    broken[[2, 5, 7]] = True
    assert multiply(rounded, x)[broken].isnan().all()
    assert torch.equal(multiply(rounded, x)[~broken], clean[~broken])
    layer.weight.data[38, 20] = torch.inf
    for int8 in (False, True):
        finite = multiply(PackedLinear(layer, int8=int8), torch.randn(5, 21, dtype=dtype)).isfinite()
        assert not finite[:, 38].any() and finite.sum() == 5 * 39


# ------------------------------------------------------------------------------------------ searches


def sentences(count: int) -> list[torch.Tensor]:
    """Of 1 to 9 tokens, the last the end."""
    torch.manual_seed(1)
    words = dictionary()
    lengths = torch.randint(9, (count,)).tolist()
    texts = [torch.randint(words.nspecial, len(words), (length,)) for length in lengths]
    return [torch.cat([tokens, torch.tensor([words.eos()])]) for tokens in texts]


def search(model: Weights, batch: list[torch.Tensor], **options) -> list[list[dict]]:
    words = dictionary()
    known = {"beam": 3, "longest": 12, "shortest": 1, "begin": words.eos(), "end": words.eos()}
    known |= {"padding": words.pad(), "unknown": words.unk(), "normalised": 1, "length_penalty": 1.0}
    settings = Settings(**known | {"temperature": 1.0} | options)
    source = nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=words.pad())
    return native.search(model, source, settings, [])


def assert_equal(actual: list[list[dict]], expected: list[list[dict]]) -> None:
    assert [len(hypotheses) for hypotheses in actual] == [len(hypotheses) for hypotheses in expected]
    for left, right in zip(*(itertools.chain(*results) for results in (actual, expected))):
        assert all(torch.equal(left[name], right[name]) for name in ("tokens", "score", "positional_scores"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("int8", (False, True))
@pytest.mark.parametrize(
    "flags",
    (
        f"{PRE_NORM} --decoder-attention-heads 3 --decoder-embed-dim 24",
        "--decoder-self-fixed-alpha 3",
        "--encoder-self-attention-normalizer rela --output-alpha 1.5",
    ),
)
def test_a_translation_depends_neither_on_its_batch_nor_on_threads(dtype, int8, flags):
    """To the bit; with more sentences than are decoded at a time: some begin where others have ended."""
    model, batch = Weights(peaked(flags).to(dtype), int8), sentences(90)
    alone = [search(model, [sentence])[0] for sentence in batch]
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert_equal(search(model, batch), alone)
            assert_equal(search(model, batch[:4]), alone[:4])
    finally:
        torch.set_num_threads(before)


def test_every_weight_counts():
    flags = "--layernorm-embedding --decoder-embed-dim 8 --decoder-output-dim 12 --length-scaling "
    flags += "--decoder-self-attention-normalizer rela"
    built = peaked(f"{PRE_NORM} {flags}")
    batch = sentences(3)
    expected = search(Weights(built), batch)
    for name, parameter in built.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.mul_(1.3).add_(0.2 * torch.randn_like(parameter))
        changed = search(Weights(built), batch)
        same = all(after[0]["score"] == before[0]["score"] for after, before in zip(changed, expected))
        # the bias of keys adds the same to all scores of a query
        assert not same or name.endswith("k_proj.bias"), name
        with torch.no_grad():
            parameter.copy_(kept)


def test_what_is_out_of_range_is_an_error():
    model = Weights(peaked(f"{PRE_NORM} --encoder-learned-pos --max-source-positions 8"))
    for token in (-1, len(dictionary())):
        with pytest.raises(ValueError, match=str(len(dictionary()))):
            search(model, [torch.tensor([5, token, 2])])
    assert search(model, [torch.full((8,), 5)])[0][0]["score"].isfinite()
    with pytest.raises(ValueError, match="8 positions"):
        search(model, [torch.full((9,), 5)])
