"""Lines of a pipe or a terminal as they come in, several at once where several are there."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from ..corpora.readers.lines import decoded
from ..errors import UserError

LONGEST = 1 << 20  # bytes of a line: far beyond any sentence a model takes


def available_lines(descriptor: int, name: str, most: int = 1000) -> Iterator[list[str]]:
    """Yield lists of lines: those that have arrived, at least one and at most ``most``.

    Nothing is waited for once there is a line, so that a program on the other end that waits for its answer
    gets it, and yet a pipe that is full is read many lines at a time. Lines are decoded as ``read_lines`` of
    ``user_dir.corpora.readers`` decodes those of files.

    Args:
        descriptor: of a file open for reading.
        name: what error messages call it.
        most: lines in a list.

    Raises:
        UserError: a line is not UTF-8, or longer than 1 MiB. All lines before it have been yielded.
    """
    rest, number, lines, ended = b"", 0, [], False
    while not ended:
        block = os.read(descriptor, 1 << 16)
        ended = not block
        *whole, rest = (rest + block).split(b"\n")
        if ended and rest:
            whole.append(rest)
        for line in whole:
            number += 1
            try:
                lines.append(decoded(line, number, name))
            except UserError:
                if lines:
                    yield lines
                raise
            if len(lines) == most:
                yield lines
                lines = []
        if len(rest) > LONGEST:
            if lines:
                yield lines
            raise UserError(
                f"{name}, line {number + 1} has more than {LONGEST:,} bytes; give one sentence a line"
            )
        if lines and (ended or not select.select([descriptor], [], [], 0)[0]):
            yield lines
            lines = []
