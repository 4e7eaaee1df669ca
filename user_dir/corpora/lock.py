"""One run at a time on a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second run off the same folder; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"another run is preparing {folder}; wait until it ends") from None
    finally:
        os.close(lock)
