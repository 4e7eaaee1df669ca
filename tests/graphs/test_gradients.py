"""Gradients at fixed places."""

import torch
from torch import nn

from user_dir.graphs.gradients import Gradients


def parameters(count=3):
    return [nn.Parameter(torch.full((2,), float(i))) for i in range(count)]


def test_they_add_up_in_place_and_start_at_zero():
    used, other, unused = parameters()
    gradients = Gradients()
    assert gradients.restore(), "before the first batch there are none"
    (used * 2 + other).sum().backward()
    assert gradients.adopt([used, other, unused]) and not gradients.adopt([used, other, unused])
    places = gradients.current()
    (used * 3).sum().backward()
    assert not gradients.restore(), "in the middle of an update they are kept"
    assert used.grad is places[0] and used.grad.tolist() == [5, 5] and other.grad.tolist() == [1, 1]
    used.grad = other.grad = None  # as fairseq does
    assert gradients.restore()
    assert used.grad is places[0] and used.grad.tolist() == other.grad.tolist() == [0, 0]
    assert unused.grad is None, "an optimizer would move it"


def test_gradients_from_elsewhere_are_copied():
    parameter, other = parameters(2)
    gradients = Gradients()
    (parameter + other).sum().backward()
    gradients.adopt([parameter, other])
    parameter.grad, other.grad = torch.tensor([7.0, 8.0]), None
    assert not gradients.restore()
    assert parameter.grad is gradients.places[parameter] and parameter.grad.tolist() == [7, 8]
    assert other.grad.tolist() == [0, 0]
    kept = gradients.copies()
    third = nn.Parameter(torch.ones(2))
    third.grad = torch.ones(2)
    gradients.clear([parameter, other, third])
    assert parameter.grad.tolist() == [0, 0] and third.grad is None
    gradients.set(kept)
    assert parameter.grad.tolist() == [7, 8]
