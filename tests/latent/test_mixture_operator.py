"""The log-mixture as an operator: torch.compile, torch.func and what torch expects of operators."""

import pytest
import torch
from torch.library import opcheck

from user_dir.latent import log_mixture, mixture_operator

ROW = torch.tensor([0, 0, 1, 3, 3])


@pytest.fixture(params=("native", "reference"), autouse=True)
def _implementation(request, monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", request.param)


def given():
    return torch.randn(5, 7, dtype=torch.float64), 0.1 + torch.rand(5, dtype=torch.float64)


def squares(logits, weights):
    return log_mixture(logits, weights, ROW, 4)[[0, 1, 3]].square()


def squared(logits, weights):
    return squares(logits, weights).sum()


def test_are_what_torch_expects():
    logits, weights = (each.requires_grad_() for each in given())
    opcheck(mixture_operator.log_mixture, (logits, weights, ROW, 4))
    _, mixture, pairs = mixture_operator.log_mixture(logits, weights, ROW, 4)
    kept = (logits.detach(), weights.detach(), ROW, mixture, pairs, torch.randn(4, 7, dtype=torch.float64))
    opcheck(mixture_operator.backward_operator, kept)


def test_compiles_without_breaks():
    torch._dynamo.reset()
    compiled = torch.compile(log_mixture, fullgraph=True, dynamic=True, backend="aot_eager")
    logits, weights = given()
    for n in (5, 4):
        assert torch.equal(
            compiled(logits[:n], weights[:n], ROW[:n], 4), log_mixture(logits[:n], weights[:n], ROW[:n], 4)
        )
    with pytest.raises(ValueError, match="ascend"):
        compiled(logits, weights, ROW.flip(0), 4)


def test_transforms():
    leaves = [each.requires_grad_() for each in given()]
    found = torch.func.grad(squared, (0, 1))(*(each.detach() for each in leaves))
    torch.testing.assert_close(found, torch.autograd.grad(squared(*leaves), leaves))
    logits, weights = (torch.stack((each.detach(), 2 * each.detach())) for each in leaves)
    found = torch.vmap(lambda z, w: log_mixture(z, w, ROW, 4))(logits, weights)
    assert torch.equal(found[1], log_mixture(logits[1], weights[1], ROW, 4))
    found, expected = (
        torch.autograd.functional.jacobian(squares, (logits[1], weights[1]), vectorize=at_once)
        for at_once in (True, False)
    )
    torch.testing.assert_close(found, expected)
    with pytest.raises(RuntimeError, match="twice"):
        torch.func.grad(lambda z: torch.func.grad(squared)(z, weights[0]).square().sum())(logits[0])
