"""Fixed patterns, beside loops over queries and keys."""

import pytest
import torch

from user_dir.attention.normalizers.fixed_patterns import PATTERNS, fixed_patterns

LIKE = torch.zeros(1, dtype=torch.float64)


def slow(n):
    """The seven patterns of a sentence of n tokens, (7, n, n), by their definitions."""
    patterns = torch.zeros(7, n, n, dtype=torch.float64)
    for i in range(n):
        patterns[0, i, i] = 1
        if i > 0:
            patterns[1, i, i - 1] = 1
        if i + 1 < n:
            patterns[2, i, i + 1] = 1
        for number, keys, value in (
            (3, range(0, i - 1), lambda j: (j + 1) ** 3),
            (4, range(i + 2, n), lambda j: (n - j) ** 3),
            (5, range(n), lambda j: (j + 1) ** 3),
            (6, range(n), lambda j: (n - j) ** 3),
        ):
            total = sum(value(j) for j in keys)
            for j in keys:
                patterns[number, i, j] = value(j) / total
    return patterns


@pytest.mark.parametrize("n", (1, 2, 3, 7))
def test_without_padding(n):
    found = fixed_patterns(None, n, len(PATTERNS), LIKE)
    torch.testing.assert_close(found, slow(n)[None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("left", (True, False))
def test_padding_on_either_side(left):
    lengths = (6, 4, 1)
    mask = torch.arange(6) >= torch.tensor(lengths)[:, None]
    found = fixed_patterns(mask.flip(1) if left else mask, 6, 7, LIKE)
    for each, n in zip(found, lengths):
        inside = slice(6 - n, 6) if left else slice(0, n)
        torch.testing.assert_close(each[:, inside, inside], slow(n), rtol=1e-12, atol=1e-12)
        assert each.sum() == pytest.approx(slow(n).sum().item())


def test_fewer_heads_and_long_sentences_in_half_precision():
    assert fixed_patterns(None, 5, 3, LIKE).shape == (1, 3, 5, 5)
    found = fixed_patterns(None, 1000, 7, torch.zeros(1, dtype=torch.float16))
    assert found.dtype == torch.float16 and found.isfinite().all()
    assert found[0, 5].double().sum(-1).sub(1).abs().max() < 1e-2
