"""One process at a time on a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import UserError
from .files import make_folder

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None


class Busy(UserError):
    """Another process is at work on the folder."""


@contextmanager
def locked(folder: Path, doing: str) -> Iterator[tuple[int, ...]]:
    """Keep others off a folder that this process is ``doing`` something to; makes the folder.

    The lock ends with the process, however it ends. Yields the file descriptors that a child must be
    passed (``pass_fds``) for the lock to last until the child has ended as well.

    Raises:
        Busy: another process holds it.
    """
    make_folder(folder)
    if fcntl is None:
        yield ()
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another run is {doing} {folder}; wait until it ends") from None
        yield (lock,)
    finally:
        os.close(lock)
