"""Lines of a pipe or terminal as they arrive, several at once if available."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from ..bounded import MAX_LINE, too_long
from ..corpora.readers.lines import decoded
from ..errors import UserError


def available_lines(descriptor: int, name: str, most: int = 1000) -> Iterator[list[str]]:
    """Yield lists of lines: those that have arrived, at least one and at most ``most``.

    Available lines are returned without waiting for more, so that a program at the other end that waits for
    an answer gets it, while a full pipe is read many lines at a time. Lines are decoded as by ``read_lines``
    of ``user_dir.corpora.readers``; error messages call the open file ``name``.

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
        try:
            for line in whole:
                number += 1
                lines.append(decoded(line, number, name))
                if len(lines) == most:
                    yield lines
                    lines = []
            if len(rest) > MAX_LINE:
                raise too_long(name, number + 1, MAX_LINE)
        except UserError:
            if lines:
                yield lines
            raise
        if lines and (ended or not select.select([descriptor], [], [], 0)[0]):
            yield lines
            lines = []
