"""What counts as the same, and what does not."""

import pytest
import torch

from user_dir.graphs.comparison import TOLERANCE, disagreement, is_finite


def gradients(dtype):
    random = torch.Generator().manual_seed(1)
    return [torch.randn(size, generator=random).to(dtype) for size in ((40, 30), (30,), (4,))]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rounding_is_no_difference_but_any_wrong_gradient_is(dtype):
    loss, right = torch.tensor(12.0), gradients(dtype)
    right.append(torch.full((5,), 1e-7, dtype=dtype))  # zero but for rounding
    expected = loss, right
    noise = torch.finfo(dtype).eps
    found = [each * (1 + noise) for each in right]
    found[-1] = -found[-1]
    assert disagreement(loss, found, expected) is None
    assert "loss" in disagreement(loss * 1.1, found, expected)
    assert "loss" in disagreement(loss * float("nan"), found, expected)
    for i in range(3):
        wrong = [each.clone() for each in right]
        wrong[i][0] *= -1
        assert "gradient" in disagreement(loss, wrong, expected)
    assert disagreement(loss, [each * 2 for each in right], expected) is not None


def test_what_is_not_finite_cannot_be_compared():
    loss, right = torch.tensor(1.0), gradients(torch.float32)
    assert is_finite(loss, right)
    right[1][3] = float("inf")
    assert not is_finite(loss, right) and not is_finite(torch.tensor(float("nan")), gradients(torch.float32))
