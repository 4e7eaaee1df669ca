"""What the views of scores as rows must not cost; their numbers are those of ``test_kernels.py``."""

import pytest
import torch

from user_dir.entmax.rows import alpha_per_row, as_rows


@pytest.fixture
def backend():
    """No implementation is needed."""


def test_contiguous_rows_are_not_copied():
    tensor = torch.randn(2, 3, 4)
    assert as_rows(tensor, -1).data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 1), (4, 1), (3, 4, 1), (2, 3, 1, 1), (2, 3, 4, 1)]
)
def test_alpha_is_not_expanded_to_all_rows(shape):
    vector, repeat = alpha_per_row(torch.rand(shape), torch.randn(2, 3, 4, 5), -1)
    assert vector.is_contiguous() and vector.numel() == torch.Size(shape).numel()
    assert 24 % (repeat * vector.numel()) == 0
