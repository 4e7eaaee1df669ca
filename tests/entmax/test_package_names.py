"""The names of the entmax package: the package itself is the oracle."""

import entmax as package
import pytest
import torch

import user_dir.entmax as ours

MAPPINGS = [
    ("sparsemax", {"k": 3}),
    ("entmax15", {"k": 4}),
    ("entmax_bisect", {"alpha": 1.3, "n_iter": 80}),
    ("Sparsemax", {"k": 3}),
    ("Entmax15", {}),
    ("EntmaxBisect", {"alpha": 1.7, "n_iter": 80}),
]
LOSSES = [
    ("sparsemax_loss", {"k": 5}),
    ("entmax15_loss", {}),
    ("entmax_bisect_loss", {"alpha": 1.3, "n_iter": 80}),
    *(("SparsemaxLoss", {"reduction": kind}) for kind in ("none", "sum", "elementwise_mean")),
    ("Entmax15Loss", {"ignore_index": 2, "k": 5}),
    ("EntmaxBisectLoss", {"alpha": 1.3, "n_iter": 80, "ignore_index": 2, "reduction": "sum"}),
]


def both(name, options, *inputs):
    """Results and gradients of the first input, of the package and of ours."""
    for module in (package, ours):
        function = getattr(module, name)
        is_class = isinstance(function, type)
        result = function(**options)(*inputs) if is_class else function(*inputs, **options)
        yield result, *torch.autograd.grad((result**2).sum(), inputs[0])


@pytest.mark.parametrize("name, options", MAPPINGS)
@pytest.mark.parametrize("dim", (-1, 0, 1))
def test_mappings(name, options, dim):
    scores = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    tolerance = 1e-6 if "isect" in name else 1e-12
    torch.testing.assert_close(*both(name, {**options, "dim": dim}, scores), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name, options", LOSSES)
def test_losses(name, options):
    scores = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    target = torch.arange(8) % 5
    torch.testing.assert_close(*both(name, options, scores, target), rtol=1e-6, atol=1e-8)
