"""Knowing the mask of the future when it is seen."""

import pytest
import torch

from user_dir.attention import future
from user_dir.attention.future import is_future_mask

INF = float("inf")


def mask(size, dtype=torch.float32):
    if dtype == torch.bool:
        return torch.ones(size, size, dtype=dtype).triu(1)
    return torch.full((size, size), -INF, dtype=dtype).triu(1)


@pytest.fixture
def looks(monkeypatch):
    """A list with an entry for each mask whose entries were looked at."""
    looked, look = [], future._is_future
    monkeypatch.setattr(future, "_is_future", lambda mask: looked.append(1) or look(mask))
    return looked


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.float64, torch.bool))
@pytest.mark.parametrize("size", (1, 2, 7))
def test_is_known(size, dtype):
    assert is_future_mask(mask(size, dtype)) and is_future_mask(mask(9, dtype)[:size, :size])


@pytest.mark.parametrize("grad", (False, True))
def test_a_buffer_is_looked_at_once(looks, grad):
    buffer = mask(9)
    with torch.set_grad_enabled(grad):
        assert all(is_future_mask(buffer[:size, :size]) for size in (1, 5, 9, 5))
    assert len(looks) == 1
    buffer[4, 1] = -1.0
    assert not is_future_mask(buffer[:3, :3]) and not is_future_mask(buffer[:3, :3])
    assert len(looks) == 2


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(4, 4),
        mask(4).T,
        mask(5)[:4],
        mask(5)[1:, :4],
        mask(5)[:4, 1:],
        mask(9)[:8:2, :8:2] + torch.eye(4),
        torch.full((4, 4), -1e8).triu(1),
        mask(4).masked_fill(torch.eye(4, dtype=torch.bool), -INF),
        mask(4).requires_grad_(),
        mask(4).expand(2, 4, 4),
        mask(4, torch.bool).T,
    ],
    ids=range(11),
)
def test_others_are_not(other):
    assert not is_future_mask(other)


def test_in_inference_mode(looks):
    with torch.inference_mode():
        buffer = mask(4)
        assert is_future_mask(buffer) and is_future_mask(buffer[:2, :2])
        buffer[1, 0] = -1.0
        assert not is_future_mask(buffer)
