"""Figures as text."""

from __future__ import annotations

import pytest

from user_dir.tables import significance


@pytest.mark.parametrize(
    ("p", "text"),
    [(1.0, "1.000"), (0.0496, "0.050"), (0.0005, "0.001"), (0.00049, "< 0.001"), (1e-4, "< 0.001")],
)
def test_significance_is_never_0(p, text):
    assert significance(p) == text
