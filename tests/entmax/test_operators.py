"""α-entmax and its loss as operators: torch.compile, torch.export, torch.func, fake and meta tensors."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

from user_dir.entmax import entmax, entmax_loss, loss, op

NATIVE = pytest.mark.parametrize("backend", ("native",), indirect=True)
SHAPE = (2, 3, 4, 5)
ALPHAS = {
    "number": 1.5,
    "one": 1.0,
    "per head": torch.tensor([1.0, 1.3, 2.0], dtype=torch.float64).view(3, 1, 1),
}
TARGET = torch.tensor([0, 6, -100, 3])


def scores(*shape, dtype=torch.float64):
    drawn = torch.randn(shape, dtype=dtype)
    drawn[..., :1] = -torch.inf  # a hidden key
    return drawn


def by_autograd(function, *inputs):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    return torch.autograd.grad(function(*inputs), inputs)


def weighted(weights):
    """A scalar that depends on each weight in another way."""
    return weights.flatten().cumsum(0).square().sum()


OPERATORS = {
    "entmax": lambda: (
        op.entmax_operator,
        (scores(*SHAPE).requires_grad_(), ALPHAS["per head"], -1),
    ),
    "entmax turned": lambda: (
        op.entmax_operator,
        (scores(*SHAPE).transpose(1, 3).requires_grad_(), torch.tensor(1.5).requires_grad_(), 1),
    ),
    "entmax of nothing": lambda: (op.entmax_operator, (torch.zeros(0, 3), torch.tensor(1.5), -1)),
    "entmax_backward": lambda: (
        op.entmax_backward,
        (entmax(scores(*SHAPE), 1.5), ALPHAS["per head"], torch.randn(SHAPE), -1, True),
    ),
    "entmax_loss": lambda: (
        loss.entmax_loss_operator,
        (torch.randn(4, 7).requires_grad_(), TARGET, 1.5, 0.1, -100),
    ),
    "entmax_loss_backward": lambda: (
        loss.entmax_loss_backward,
        (torch.randn(4, 7), TARGET, 1.5, 0.1, -100, torch.ones(4, 3), torch.ones(4)),
    ),
}


@NATIVE
@pytest.mark.parametrize("name", OPERATORS)
def test_are_what_torch_expects(name):
    opcheck(*OPERATORS[name]())


@NATIVE  # what is compiled calls an operator, whatever computes in it
@pytest.mark.parametrize(
    "name, dynamic", (pytest.param("one", False, marks=pytest.mark.nightly), ("per head", True))
)
def test_compiles_without_breaks(name, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(entmax, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for shape in (SHAPE, (4, 3, 2, 7)) if dynamic else (SHAPE,):
        z, alpha = scores(*shape), ALPHAS[name]
        z[0, 0] = -torch.inf
        assert torch.equal(compiled(z, alpha), entmax(z, alpha))
        actual, expected = (
            by_autograd(lambda z, alpha=alpha, f=f: weighted(f(z, alpha)), z)
            if name != "per head"
            else by_autograd(lambda z, alpha, f=f: weighted(f(z, alpha)), z, alpha)
            for f in (compiled, entmax)
        )
        torch.testing.assert_close(actual, expected)


@NATIVE
@pytest.mark.nightly
def test_the_loss_compiles_without_breaks():
    torch._dynamo.reset()
    compiled = torch.compile(entmax_loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (4, 3):
        z, target = torch.randn(rows, 7, dtype=torch.float64), TARGET[:rows]
        assert torch.equal(compiled(z, target), entmax_loss(z, target))
        actual = by_autograd(lambda z, y=target: weighted(compiled(z, y)), z)
        torch.testing.assert_close(actual, by_autograd(lambda z, y=target: weighted(entmax_loss(z, y)), z))


@NATIVE
def test_wrong_values_are_refused_in_a_graph_too():
    torch._dynamo.reset()
    with pytest.raises(ValueError, match=r"0\.5"):
        torch.compile(entmax, fullgraph=True, backend="aot_eager")(torch.randn(3), torch.tensor(0.5))
    with pytest.raises(ValueError, match="7"):
        torch.compile(entmax_loss, fullgraph=True, backend="aot_eager")(torch.randn(1, 7), torch.tensor([7]))


@pytest.mark.nightly
def test_compiles_with_inductor():
    torch._dynamo.reset()
    compiled = torch.compile(lambda z: entmax(2 * z, 1.5) + 1, fullgraph=True)
    z = scores(*SHAPE)
    torch.testing.assert_close(compiled(z), entmax(2 * z, 1.5) + 1)


class Weights(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = torch.nn.Parameter(torch.full((3, 1, 1), 1.5, dtype=torch.float64))

    def forward(self, z, padding):
        return entmax(z.masked_fill(padding[:, None, None], -torch.inf), self.alpha)


@NATIVE
def test_exports_with_lengths_that_vary():
    module, length = Weights(), torch.export.Dim("length", min=2, max=500)
    shapes = ({3: length}, {1: length})
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0, 4:] = True
    exported = torch.export.export(
        module, (scores(2, 3, 4, 5), padding[:, :5].clone()), dynamic_shapes=shapes
    ).module()
    z = scores(2, 3, 4, 6)
    assert torch.equal(exported(z, padding), module(z, padding))


@pytest.mark.parametrize("name", ALPHAS)
def test_transforms(name):
    z, alpha = scores(*SHAPE), ALPHAS[name]
    expected = entmax(z, alpha)
    for dim in range(4) if name != "per head" else ():
        over = torch.vmap(lambda z: entmax(z, alpha), dim, dim)(z)
        torch.testing.assert_close(over, entmax(z, alpha, -1 if dim < 3 else 2))
    torch.testing.assert_close(torch.vmap(lambda z: entmax(z, alpha))(z), expected)
    actual = torch.func.grad(lambda z: weighted(entmax(z, alpha)))(z)
    torch.testing.assert_close(actual, by_autograd(lambda z: weighted(entmax(z, alpha)), z)[0])
    row = z[0, 0, 0]
    number = alpha if isinstance(alpha, float) else 1.3
    jacobian = torch.stack([by_autograd(lambda s, i=i: entmax(s, number)[i], row)[0] for i in range(5)])
    torch.testing.assert_close(torch.func.jacrev(lambda s: entmax(s, number))(row), jacobian)
    rows = torch.autograd.functional.jacobian(lambda s: entmax(s, number), row, vectorize=True)
    torch.testing.assert_close(rows, jacobian)


def test_vmap_over_alpha_and_over_single_scores():
    z, alpha = scores(3, 4, 5), torch.tensor([1.2, 1.5, 2.0], dtype=torch.float64)
    expected = torch.stack([entmax(rows, a) for rows, a in zip(z, alpha)])
    torch.testing.assert_close(torch.vmap(entmax)(z, alpha), expected)
    torch.testing.assert_close(torch.vmap(entmax, (None, 0))(z[0], alpha)[2], entmax(z[0], alpha[2]))
    assert torch.equal(torch.vmap(lambda score: entmax(score, 1.5, 0))(torch.randn(4)), torch.ones(4))


def test_gradients_by_example_add_up():
    z, alpha = scores(*SHAPE), ALPHAS["per head"].clone()
    loss = lambda z, alpha: weighted(entmax(z, alpha))  # noqa: E731
    grads = torch.vmap(torch.func.grad(loss, (0, 1)), (0, None))(z, alpha)
    for example in range(2):
        expected = by_autograd(loss, z[example], alpha)
        torch.testing.assert_close((grads[0][example], grads[1][example]), expected)


@pytest.mark.parametrize("function", (lambda z: entmax(z, 1.3), lambda z: entmax_loss(z[None], TARGET[:1])))
def test_second_derivatives(function):
    z = torch.randn(7, dtype=torch.float64)

    def cubed(z):
        return function(z).pow(3).sum()

    expected = torch.autograd.functional.hessian(cubed, z)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(torch.func.jacrev(torch.func.jacrev(cubed))(z), expected)


def test_the_loss_of_a_batch_of_batches():
    z, target = torch.randn(3, 4, 7), TARGET.expand(3, 4)
    assert torch.equal(torch.vmap(entmax_loss)(z, target), entmax_loss(z, target))
    grads = torch.vmap(torch.func.grad(lambda z, y: weighted(entmax_loss(z, y))))(z, target)
    expected = [by_autograd(lambda z: weighted(entmax_loss(z, TARGET)), batch)[0] for batch in z]
    torch.testing.assert_close(grads, torch.stack(expected))


@NATIVE
def test_forward_mode_is_refused():
    """An operator without a rule for it would give a derivative of 0."""
    z = torch.randn(3, 5)
    with pytest.raises(NotImplementedError):
        torch.func.jvp(lambda z: entmax(z, 1.5), (z,), (z,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError):
        entmax(torch.autograd.forward_ad.make_dual(z, z), 1.5)


@pytest.mark.parametrize("alpha", (1.0, 1.5))
def test_tensors_without_numbers(alpha):
    z, target = torch.randn(3, 5), torch.tensor([1, 2, 3])
    with FakeTensorMode() as mode:
        assert entmax(torch.empty(3, 5), alpha).shape == (3, 5)
    fake = mode.from_tensor(z)
    for leaf, labels in ((fake, mode.from_tensor(target)), (z.to("meta"), target.to("meta"))):
        leaf.requires_grad_()
        weights = entmax(leaf, alpha)
        assert type(weights) is type(leaf) and weights.device == leaf.device and weights.shape == (3, 5)
        losses = entmax_loss(leaf, labels, alpha)
        (grad,) = torch.autograd.grad(weights.sum() + losses.sum(), leaf)
        assert losses.shape == (3,) and grad.shape == (3, 5) and type(grad) is type(leaf)
