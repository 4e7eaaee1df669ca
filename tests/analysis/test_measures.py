"""Measures at their limits; all of them are compared with loops over whole splits in test_statistics."""

from __future__ import annotations

import pytest
import torch

from user_dir.analysis import measures


def test_support_counts_exact_zeros_only():
    weights = torch.tensor([[[[1.0, 0.0], [1 - 1e-30, 1e-30]]]], dtype=torch.float64)
    attended, pairs = measures.support(weights, torch.tensor([[[True, False], [True, True]]]))
    assert (attended.tolist(), pairs.tolist()) == ([[3]], [3])


@pytest.mark.parametrize("heads", [2, 3, 8])
def test_diversity_is_1_for_disjoint_heads_and_0_for_identical_heads(heads):
    apart = torch.eye(heads, dtype=torch.float64)[None, :, None, :]  # each head attends to another key
    assert measures.diversity(apart).item() == pytest.approx(1)
    assert measures.diversity(apart[:, :1].expand(-1, heads, -1, -1)).item() == pytest.approx(0)
