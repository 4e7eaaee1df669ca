"""Products by oneDNN and by 8-bit integers against plain ones."""

import pytest
import torch
from torch import nn

from user_dir.decoding.products import Int8Product, Product, has_vnni


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("relu", (True, False))
@pytest.mark.parametrize("rows", (0, 1, 70))
def test_outputs_stand_side_by_side(dtype, relu, rows):
    layers = [nn.Linear(9, 5), nn.Linear(9, 33), nn.Linear(9, 2, bias=False)]
    layers = [layer.to(dtype) for layer in layers]
    x = torch.randn(rows, 9, dtype=dtype)
    expected = torch.cat([layer(x) for layer in layers], dim=1)
    found = Product(*layers, relu=relu)(x)
    torch.testing.assert_close(found, expected.relu() if relu else expected, rtol=0, atol=1e-5)


def test_without_onednn_it_is_the_same(monkeypatch):
    layer, x = nn.Linear(64, 64), torch.randn(10, 64)
    fast = Product(layer, relu=True)(x)
    monkeypatch.setattr("user_dir.decoding.products.has_onednn", lambda: False)
    torch.testing.assert_close(Product(layer, relu=True)(x), fast, rtol=0, atol=1e-5)


@pytest.mark.parametrize("relu", (True, False))
@pytest.mark.parametrize("bias", (True, False))
def test_int8_is_off_by_its_rounding_at_most(relu, bias):
    layers = [nn.Linear(64, 40, bias=bias), nn.Linear(64, 8, bias=bias)]
    with torch.no_grad():
        layers[1].weight.mul_(100)  # outputs have scales of their own
    x = torch.randn(30, 64)
    expected = torch.cat([layer(x) for layer in layers], dim=1)
    found = Int8Product(*layers, relu=relu)(x)
    weight = torch.cat([layer.weight for layer in layers]).detach()
    # half a step of x, of which there are 255 between its extremes, and of each weight, 127 up to the largest
    step = (x.max().clamp(min=0) - x.min().clamp(max=0)) / (255 if has_vnni() else 127)
    bound = step / 2 * weight.abs().sum(1) + weight.abs().amax(1) / 254 * (
        x.abs().sum(1)[:, None] + 64 * step
    )
    off = (found - (expected.relu() if relu else expected)).abs()
    assert (off <= 1.05 * bound).all()
    assert off.max() > 0
