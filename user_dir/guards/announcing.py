"""One line when a guard changes what fairseq computes for an architecture of its own.

Whoever compares with stock fairseq must know. Nothing is printed for this package's architectures.
"""

import functools
import logging

from fairseq import models

from ..sections import architecture
from .installing import around
from .table import WITHOUT

OURS = "adaptively_sparse"
logger = logging.getLogger(__name__)
_stock = ""  # the architecture of fairseq that was built last, if it was that


@around(models, "build_model")
def note_architecture(build, cfg, *args, **kwargs):
    """Note the architecture of every model that fairseq builds."""
    global _stock
    name = architecture(cfg) or ""
    _stock = "" if name.startswith(OURS) else name
    return build(cfg, *args, **kwargs)


def acted(guard: str, what: str) -> None:
    """Say, once per process and architecture, that a guard did ``what``, which fairseq does not do."""
    if _stock:
        _say_once(guard, what, _stock)


@functools.cache
def _say_once(guard: str, what: str, architecture: str) -> None:
    without = f"the guard {guard}; {WITHOUT}={guard} leaves it out"
    logger.warning("%s: the plugin %s, unlike fairseq alone (%s)", architecture, what, without)
