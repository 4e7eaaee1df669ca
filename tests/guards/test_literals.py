"""Literals are those of Python; what would run, or grow beyond all bounds, is none."""

import numpy as np
import pytest
import torch

from user_dir.guards.literals import is_literal, literal

TEXTS = ("1,2", "[(512, 3)] * 20", "[True] + [False]*5", "[(2*8, 3 - 1)]", "(0.9, 0.98)", "{'a': 1}", "-1e-8")


@pytest.mark.parametrize("value", [*TEXTS, "'a'", None, 3, [1, 2]])
def test_literals(value):
    assert is_literal(value)
    assert not isinstance(value, str) or literal(value) == eval(value)


LARGE = ("[0] * 10**9", "[0] * 99999", "'a' * 20000", "[[0] * 9999] * 9999 * 2", "9999 * [9999 * [1], 2]")
CALLS = ("print()", "a", "a.b", "(lambda: 1)()", "[x for x in ()]", "f'{1}'", "9 ** 9", "1; 2", ["print()"])
BROKEN = ("", "\0", "\ud800", "(" * 5000, "1" * 10_001)
BUFFERS = (b"1", np.frombuffer(b"print()", "u1"), torch.ones(1), {"a": 1})


@pytest.mark.parametrize("value", [*LARGE, *CALLS, *BROKEN, *BUFFERS])
def test_no_literals(value):
    assert not is_literal(value)
