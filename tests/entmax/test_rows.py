"""Reshaping of scores to rows and back."""

import pytest
import torch

from user_dir.entmax.rows import alpha_per_row, as_rows, from_rows, gradient_of_alpha


@pytest.mark.parametrize("shape, dim", [((), -1), ((5,), 0), ((2, 3), 0), ((2, 3, 4), 1), ((2, 3, 4), -1)])
def test_from_rows_inverts_as_rows(shape, dim):
    tensor = torch.randn(shape)
    rows = as_rows(tensor, dim)
    assert rows.is_contiguous() and rows.dim() == 2 and rows.numel() == tensor.numel()
    assert rows.size(1) == (shape[dim] if shape else 1)
    assert torch.equal(from_rows(rows, tensor, dim), tensor)


def test_contiguous_rows_are_not_copied():
    tensor = torch.randn(2, 3, 4)
    assert as_rows(tensor, -1).data_ptr() == tensor.data_ptr()


SHAPES = [
    (),
    (1,),
    (1, 1, 1, 1),
    (2, 1, 1, 1),
    (3, 1, 1),
    (4, 1),
    (3, 4, 1),
    (2, 3, 1, 1),
    (2, 1, 4, 1),
    (2, 3, 4, 1),
]


@pytest.mark.parametrize("alpha_shape", SHAPES)
def test_each_row_finds_its_alpha(alpha_shape):
    scores = torch.randn(2, 3, 4, 5)
    alpha = torch.rand(alpha_shape)
    vector, repeat = alpha_per_row(alpha, scores, -1)
    found = [vector[row // repeat % len(vector)].item() for row in range(24)]
    assert found == alpha.expand(2, 3, 4, 1).flatten().tolist()
    if alpha_shape != (2, 1, 4, 1):  # all others vary along adjacent dimensions only
        assert len(vector) == alpha.numel()


def test_each_row_finds_its_alpha_along_another_dimension():
    alpha = torch.rand(3, 1, 5)
    vector, repeat = alpha_per_row(alpha, torch.randn(2, 3, 4, 5), 2)
    found = [vector[row // repeat % len(vector)].item() for row in range(30)]
    assert found == alpha.expand(2, 3, 1, 5).flatten().tolist()


@pytest.mark.parametrize("alpha_shape", SHAPES)
def test_gradient_of_alpha_is_that_of_the_broadcast(alpha_shape):
    scores, per_row = torch.randn(2, 3, 4, 5), torch.randn(24, dtype=torch.float64)
    alpha = torch.zeros(alpha_shape, requires_grad=True)
    (alpha.expand(2, 3, 4, 1).double().flatten() * per_row).sum().backward()
    torch.testing.assert_close(gradient_of_alpha(per_row, alpha, scores, -1), alpha.grad)


def test_alpha_of_any_layout_becomes_contiguous():
    scores, alphas = torch.randn(2, 3, 4, 5), torch.rand(3, 2)
    for alpha in (alphas[:, 1].view(3, 1, 1), torch.rand(1).expand(3, 1, 1), torch.rand(4, 3).t()[..., None]):
        vector, repeat = alpha_per_row(alpha, scores, -1)
        assert vector.is_contiguous()
        found = [vector[row // repeat % len(vector)].item() for row in range(24)]
        assert found == alpha.expand(2, 3, 4, 1).flatten().tolist()
