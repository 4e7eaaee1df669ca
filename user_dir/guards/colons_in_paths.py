"""A path with a colon is taken for several paths: data in ``run-10:30`` are looked for in ``run-10``.

fairseq (all versions) splits the paths of data and of checkpoints at colons, to take shards and ensembles.
Unnecessary once fairseq asks whether the whole is a path.
"""

from __future__ import annotations

import functools
import os

from fairseq import utils


def install() -> None:
    """Do not split what exists as a whole."""
    split = utils.split_paths

    @functools.wraps(split)
    def split_paths(paths: str, separator: str = os.pathsep) -> list[str]:
        return [paths] if os.path.exists(paths) else split(paths, separator)

    utils.split_paths = split_paths
