"""Formatting of error messages, whatever they quote."""

import pytest

from user_dir.errors import UserError


def test_a_printable_message_is_unchanged():
    error = UserError("a.pt: α is 3, not 'ア'")
    assert str(error) == "a.pt: α is 3, not 'ア'"
    assert error.code == f"error: {error}"


@pytest.mark.parametrize(
    "quoted, shown",
    [
        ("two\nlines", "two lines"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("left\u202eright", "left\\u202eright"),
        ("\ud800", "\\ud800"),
        ("\0", "\\x00"),
    ],
)
def test_control_characters_are_escaped(quoted, shown):
    error = UserError(f"it is {quoted}")
    assert str(error) == f"it is {shown}"
    assert error.code.encode(), "it cannot be printed"
