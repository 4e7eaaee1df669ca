"""The exception for mistakes of the user."""

from __future__ import annotations


class UserError(ValueError, SystemExit):
    """A mistake in the user's input, with a one-line message that names the value and the remedy.

    It is a ``ValueError`` for callers of the library, and a ``SystemExit`` so that, if not caught, it ends
    any command line (including fairseq's) with the message and status 1 instead of a traceback.

    Messages may quote hostile files, so line breaks and control characters, which a terminal would interpret,
    are replaced or escaped.
    """

    def __init__(self, message: str):
        spaced = message.translate(dict.fromkeys(map(ord, "\n\r\t"), " "))
        message = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in spaced)
        super().__init__(message)
        self.code = f"error: {message}"


def one_line(error: BaseException) -> str:
    """The message of an exception on one line, or its type if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__


SHOWN = 5  # maximum number of line numbers in a message


def first_few(numbers: list[int], noun: str = "line") -> str:
    """``line 3``, ``lines 3, 8 and 9``, or ``lines 1, 2, 3, 4, 5 and 7 more``.

    Args:
        numbers: counted from 0; shown as counted from 1.
        noun: what the numbers count.
    """
    shown = [str(number + 1) for number in sorted(numbers)[:SHOWN]]
    more = [f"{len(numbers) - SHOWN:,} more"] if len(numbers) > SHOWN else []
    *most, last = [*shown, *more]
    joined = f"{', '.join(most)} and {last}" if most else last
    return f"{noun}{'' if len(numbers) == 1 else 's'} {joined}"
