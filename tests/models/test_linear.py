"""Linear layers by oneDNN against PyTorch's own."""

import copy

import pytest
import torch
from helpers import build
from torch import nn

from user_dir.models import layers as linear
from user_dir.models.layers import Linear, use_onednn


@pytest.fixture(autouse=True)
def _by_onednn(monkeypatch):
    """On every processor, as where oneDNN is faster."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(linear, "prefers_onednn", lambda: True)


@pytest.mark.parametrize("shape", ((1, 5), (40, 5), (3, 7, 5), (2, 1, 1, 5)))
@pytest.mark.parametrize("bias", (True, False))
def test_outputs_and_gradients(shape, bias):
    theirs = nn.Linear(5, 33, bias=bias)
    ours = use_onednn(copy.deepcopy(theirs))
    x = torch.randn(shape)
    results = []
    for layer in (ours, theirs):
        leaf = x.clone().requires_grad_()
        output = layer(leaf.transpose(0, -2) if len(shape) > 2 else leaf)  # rows need not be contiguous
        (output * torch.arange(33.0)).cos().sum().backward()
        results.append([output, leaf.grad, *(parameter.grad for parameter in layer.parameters())])
    for actual, expected in zip(*results):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_it_is_used_where_it_fits(monkeypatch):
    layer, calls = use_onednn(nn.Linear(5, 3)), []
    multiply = linear.multiply
    monkeypatch.setattr(linear, "multiply", lambda *args: calls.append(args) or multiply(*args))
    layer(torch.ones(2, 5))
    assert len(calls) == 1
    layer(torch.ones(5))
    layer(torch.ones(0, 5))
    layer.double()(torch.ones(2, 5, dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        layer.float()(torch.ones(2, 5))
    monkeypatch.setattr(linear, "prefers_onednn", lambda: False)
    layer(torch.ones(2, 5))
    assert len(calls) == 1


def test_parts_of_the_gradient():
    layer = use_onednn(nn.Linear(4, 3))
    layer.bias.requires_grad_(False)
    layer(torch.randn(6, 4)).sum().backward()
    assert layer.weight.grad is not None and layer.bias.grad is None
    x = torch.randn(6, 4, requires_grad=True)
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(6, 4))


def test_parameters_and_hooks_stay():
    module, calls = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))), []
    module[0].register_forward_pre_hook(lambda *_: calls.append(1))
    parameters = dict(module.named_parameters())
    use_onednn(module)
    assert [type(layer) for layer in (module[0], module[1][0])] == [Linear, Linear]
    assert all(parameter is parameters[name] for name, parameter in module.named_parameters())
    module(torch.ones(3, 2))
    assert calls == [1]


def test_the_whole_model_has_them():
    model = build("--share-all-embeddings --encoder-attention-heads 2")
    kinds = {type(module) for module in model.modules() if isinstance(module, nn.Linear)}
    assert kinds == {Linear}
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight


def test_second_derivatives():
    theirs = nn.Linear(5, 7)
    ours = use_onednn(copy.deepcopy(theirs))
    x, results = torch.randn(3, 4, 5), []
    for layer in (ours, theirs):
        leaves = [x.clone().requires_grad_(), *layer.parameters()]
        slopes = torch.autograd.grad(layer(leaves[0]).cos().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(slope.square().sum() for slope in slopes), leaves))
    for actual, expected in zip(*results):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
