"""Products by prepared weights, in floats and in 8-bit integers, against plain ones in float64."""

import pytest
import torch
from torch import nn

from user_dir.cpp import build
from user_dir.decoding import packed_linear, products
from user_dir.decoding.kernels import kernels
from user_dir.decoding.products import Int8Product, Product

DTYPES = (torch.float32, torch.float64)
SHAPES = ((1, 1), (3, 257), (67, 33), (130, 96), (300, 515))  # inputs, outputs


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
        for module in (products, packed_linear):
            monkeypatch.setattr(module, "kernels", others)
    return request.param


def reference(layers, x, relu=False):
    weight = torch.cat([layer.weight for layer in layers]).double()
    bias = [torch.zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers]
    y = nn.functional.linear(x.double(), weight, torch.cat(bias).double()).detach()
    return y.relu() if relu else y


def test_floats(instructions):
    for dtype in DTYPES:
        eps = torch.finfo(dtype).eps
        for inputs, outputs in SHAPES:
            layers = [nn.Linear(inputs, outputs), nn.Linear(inputs, 5, bias=False)]
            layers = [layer.to(dtype) for layer in layers]
            for relu in (False, True):
                product = Product(*layers, relu=relu)
                for rows in (0, 1, 2, 3, 4, 5, 6, 7, 8, 70):
                    x = torch.randn(rows, inputs, dtype=dtype)
                    found, expected = product(x), reference(layers, x, relu)
                    assert found.dtype == dtype and found.shape == expected.shape
                    torch.testing.assert_close(found.double(), expected, rtol=0, atol=20 * eps)


@pytest.mark.parametrize("kind", (Product, Int8Product))
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_do_not_depend_on_others(kind, dtype):
    product = kind(nn.Linear(67, 130).to(dtype), relu=True)
    wide = torch.randn(70, 90, dtype=dtype)
    x = wide[:, 5:72]  # rows are not side by side
    together = product(x)
    torch.set_num_threads(2)
    try:
        assert torch.equal(product(x.contiguous()), together)
    finally:
        torch.set_num_threads(1)
    for count in range(1, 15):
        assert torch.equal(torch.cat([product(part) for part in x.split(count)]), together)
    assert torch.equal(product(x.unflatten(0, (7, 10))), together.unflatten(0, (7, 10)))
    assert torch.equal(product(x.t().contiguous().t()), together)  # columns are not side by side


def test_other_inputs_are_refused():
    product = Product(nn.Linear(4, 3))
    for x in (torch.ones(2, 5), torch.ones(2, 3), torch.ones(2, 4).double()):
        with pytest.raises(ValueError):
            product(x)
    assert product(torch.ones(2, 4)).shape == (2, 3)


@pytest.mark.parametrize("relu", (True, False))
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_stay(dtype, relu):
    layer = nn.Linear(21, 40).to(dtype)
    x = torch.randn(9, 21, dtype=dtype)
    clean = Int8Product(layer, relu=relu)(x)
    x[2, 20], x[5, 0], x[7, 3] = torch.nan, torch.inf, -torch.inf
    found = Product(layer, relu=relu)(x).double()
    torch.testing.assert_close(found, reference([layer], x, relu), rtol=0, atol=1e-5, equal_nan=True)
    broken = torch.tensor([2, 5, 7])
    rounded = Int8Product(layer, relu=relu)(x)
    assert rounded[broken].isnan().all()
    others = torch.ones(9, dtype=torch.bool).index_fill(0, broken, False)
    assert torch.equal(rounded[others], clean[others])


@pytest.mark.parametrize("kind", (Product, Int8Product))
@pytest.mark.parametrize("weight", (torch.nan, torch.inf))
def test_broken_weights_break_their_outputs_alone(kind, weight):
    layer = nn.Linear(21, 40)
    with torch.no_grad():
        layer.weight[38, 20] = weight
    found = kind(layer)(torch.randn(5, 21)).isfinite()
    assert not found[:, 38].any() and found.sum() == 5 * 39


def test_integers_are_summed_exactly(instructions):
    """Where nothing is lost by rounding: 254 steps of x, and weights up to ±127."""
    for dtype in DTYPES:
        for inputs, outputs in ((2, 3), (67, 33), (514, 130)):
            x = torch.randint(-100, 155, (11, inputs), dtype=dtype)
            x[:, 0], x[:, 1] = -100, 154
            x[0, 1:], x[1, 2:] = 154, -100  # only the greatest products tell whether 16 bits are enough
            layer = nn.Linear(inputs, outputs, bias=False).to(dtype)
            with torch.no_grad():
                layer.weight.copy_(torch.randint(-127, 128, (outputs, inputs)))
                layer.weight[0] = 127
                layer.weight[:, 0] = -127
            product = Int8Product(layer)
            expected = reference([layer], x).to(dtype)
            packed = product._linear.packed
            assert packed.instructions in {"default": [0], "avx2": [1], "avx512": [1, 2]}[instructions]
            for way in range(packed.instructions + 1):
                packed.instructions = way
                assert torch.equal(product(x), expected), (instructions, way)


def test_int8_is_off_by_its_rounding_at_most(instructions):
    for dtype in DTYPES:
        for relu, bias in ((True, False), (False, True)):
            layers = [nn.Linear(65, 40, bias=bias).to(dtype), nn.Linear(65, 8, bias=bias).to(dtype)]
            with torch.no_grad():
                layers[1].weight.mul_(100)  # outputs have scales of their own
            x = torch.randn(30, 65, dtype=dtype) * torch.logspace(-9, 9, 30, dtype=dtype)[:, None]  # and rows
            x[5], x[6] = 0, x[6].abs()
            found = Int8Product(*layers, relu=relu)(x)
            weight = torch.cat([layer.weight for layer in layers]).detach().abs()
            # half a step of x, and of each weight, of which there are 127 up to the largest
            step = (x.amax(1).clamp(min=0) - x.amin(1).clamp(max=0))[:, None] / 254
            bound = step / 2 * weight.sum(1) + weight.amax(1) / 254 * (x.abs().sum(1)[:, None] + 65 * step)
            off = (found - reference(layers, x, relu)).abs()
            assert (off <= 1.05 * bound + 1e-5).all()
            assert off.max() > 0
