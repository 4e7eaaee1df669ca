"""The one exception for a mistake of the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError, SystemExit):
    """A mistake in what the user gave, told in one sentence that names the value and the remedy.

    A ``ValueError`` for callers of the library, and a ``SystemExit`` so that, left uncaught, it ends
    any command line (fairseq's own included) with that sentence and status 1 instead of a traceback.

    What a message quotes may be of a file that means harm: it stays on its line, and no control character or
    other code that a terminal would act on gets through.
    """

    def __init__(self, message: str):
        message = "".join(each if each.isprintable() else _shown(each) for each in message)
        super().__init__(message)
        self.code = f"error: {message}"


def _shown(character: str) -> str:
    return " " if character in "\n\r\t" else character.encode("unicode_escape").decode()


def one_line(error: BaseException) -> str:
    """What an exception says, on one line; of one that says nothing, its kind."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def ending_the_run(advice: str = "") -> Iterator[None]:
    """Let a UserError, with ``advice`` after it, end fairseq's commands as the sentence that it is.

    fairseq's trainer and hydra turn every Exception, as a UserError is one, into a traceback.
    """
    try:
        yield
    except UserError as error:
        raise SystemExit(error.code + advice) from None
