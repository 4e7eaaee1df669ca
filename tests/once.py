"""Folders that take long to fill: each is filled once a run, by the xdist worker that comes first."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


class Once:
    """Folders by name, in a place that all workers of a run share."""

    def __init__(self, base: Path):
        # A worker has a folder of its own inside that of the run.
        self.shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
        self.shared.mkdir(exist_ok=True)

    def __call__(self, name: str, fill: Callable[[Path], object]) -> Path:
        """The folder ``name``, filled by ``fill(folder)`` unless that is done.

        Tests must leave it as it is: others read it at the same time. If ``fill`` fails, the next caller
        begins anew, with an empty folder.
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
