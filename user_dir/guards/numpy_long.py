"""Language models cannot read sentences one by one: fairseq asks for ``numpy.compat``, which numpy 2 has not.

``--sample-break-mode eos`` of the task ``language_modeling`` (fairseq-fixed 0.12.3.1 with numpy 2) ends
with an AttributeError, because ``numpy.compat.long`` is gone; it was another name of ``int``. Unnecessary
once fairseq writes ``int``.
"""

from types import SimpleNamespace

import numpy as np


def install() -> None:
    """Give numpy the name that fairseq uses, where it is missing."""
    if not hasattr(np, "compat"):
        np.compat = SimpleNamespace(long=int)
