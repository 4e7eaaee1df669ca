"""Dropout with 16 random bits a number, on a CPU."""

import pytest
import torch
from fairseq.modules import FairseqDropout
from helpers import build

from user_dir.models import layers
from user_dir.models.layers import Dropout, use_faster


@pytest.fixture(autouse=True)
def _by_16_bits(monkeypatch):
    """On every processor, as where that is faster."""
    monkeypatch.setattr(layers, "processor_is", lambda *words: False)


def dropout(p: float) -> Dropout:
    module = torch.nn.Sequential(FairseqDropout(p))
    use_faster(module)
    return module[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_rest_scaled(p, dtype):
    torch.manual_seed(1)
    x = torch.ones(1001, 203, dtype=dtype, requires_grad=True)
    y = dropout(p)(x)
    values = set(y.unique().tolist())
    assert values == {0.0, torch.ones((), dtype=dtype).div(1 - p).item()}
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], y)
    # by the place in a word of 64 bits, whose sign is one of them
    shares = [(y.flatten()[place::4] == 0).double().mean().item() for place in range(4)]
    assert shares == pytest.approx([p] * 4, abs=0.01)
    neighbours = torch.stack([y[:, :-1].flatten(), y[:, 1:].flatten()]) == 0
    assert torch.corrcoef(neighbours.double())[0, 1].abs() < 0.01


def test_a_seed_drops_the_same_again():
    torch.manual_seed(3)
    first = dropout(0.3)(torch.ones(7, 5))
    torch.manual_seed(3)
    assert torch.equal(first, dropout(0.3)(torch.ones(7, 5)))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_what_is_not_drawn_is_as_in_fairseq(p):
    x = torch.ones(3, 4)
    assert torch.equal(dropout(p)(x), x * (1 - p))
    assert dropout(0.5).eval()(x) is x
    assert dropout(0.5)(torch.ones(0, 4)).shape == (0, 4)
    retained = dropout(0.5).eval()
    retained.make_generation_fast_("", retain_dropout=True)
    assert (retained(torch.ones(50, 50)) == 0).any()


def test_intels_processors_keep_fairseqs(monkeypatch):
    monkeypatch.setattr(layers, "processor_is", lambda *words: words == ("GenuineIntel",))
    torch.manual_seed(1)
    found = dropout(0.5)(torch.ones(9, 9))
    torch.manual_seed(1)
    assert torch.equal(found, FairseqDropout(0.5)(torch.ones(9, 9)))


def test_layers_have_it():
    layer = build("--dropout 0.1").decoder.layers[0]
    assert type(layer.dropout_module) is type(layer.activation_dropout_module) is Dropout
