"""Folders that take long to fill: each is filled once per run, by the first xdist worker that needs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


class Once:
    """Folders by name, in a place shared by all workers of a run."""

    def __init__(self, base: Path):
        # The base of a worker is a subfolder of that of the run.
        self.shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
        self.shared.mkdir(exist_ok=True)

    def __call__(self, name: str, fill: Callable[[Path], object]) -> Path:
        """The folder ``name``, filled by ``fill(folder)`` if needed.

        Tests must not change it, because others read it at the same time. If ``fill`` fails, the next caller
        starts again with an empty folder.
        """
        folder, filled = self.shared / name, self.shared / f"{name}.filled"
        with FileLock(self.shared / f"{name}.lock"):
            if not filled.exists():
                if folder.exists():
                    shutil.rmtree(folder)
                folder.mkdir()
                fill(folder)
                filled.touch()
        return folder
