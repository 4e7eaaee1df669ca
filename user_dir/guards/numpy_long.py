"""fairseq's datasets use ``numpy.compat.long``, which numpy 2.0 removed.

The task ``masked_lm`` with ``--sample-break-mode eos`` therefore ends with an AttributeError in fairseq-fixed
0.12.3.1. Unnecessary once fairseq says ``int``, which it was.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy
from fairseq.data import language_pair_dataset, token_block_dataset


class _NumpyWithCompat:
    """numpy, with what it used to have."""

    compat = SimpleNamespace(long=int)

    def __getattr__(self, name: str):
        return getattr(numpy, name)


def install() -> None:
    """Give the removed name to the modules of fairseq that use it."""
    if not hasattr(numpy, "compat"):
        language_pair_dataset.np = token_block_dataset.np = _NumpyWithCompat()
