"""A path with a colon is taken for several paths: data in ``run-10:30`` are looked for in ``run-10``.

fairseq (all versions) splits the paths of data and of checkpoints at colons, to take shards and ensembles.
Unnecessary once fairseq asks whether the whole is a path.
"""

import os

from fairseq import utils

from .installing import around


@around(utils, "split_paths")
def split_paths(split, paths: str, separator: str = os.pathsep) -> list[str]:
    """Do not split what exists as a whole."""
    return [paths] if os.path.exists(paths) else split(paths, separator)
