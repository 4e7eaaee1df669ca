"""One line when a guard changes what fairseq computes for an architecture of its own.

Whoever compares with stock fairseq must know. Nothing is printed for this package's architectures.
"""

from __future__ import annotations

import functools
import logging

from fairseq import models

from .table import WITHOUT

OURS = "adaptively_sparse"
logger = logging.getLogger(__name__)
_stock = ""  # the architecture of fairseq that was built last, if it was that


def watch() -> None:
    """Note the architecture of every model that fairseq builds."""
    build = models.build_model

    @functools.wraps(build)
    def build_model(cfg, task, *args, **kwargs):
        global _stock
        name = str(getattr(cfg, "_name", None) or getattr(cfg, "arch", None) or "")
        _stock = "" if name.startswith(OURS) else name
        return build(cfg, task, *args, **kwargs)

    models.build_model = build_model


def acted(guard: str, what: str) -> None:
    """Say, once per process and architecture, that a guard did ``what``, which fairseq does not do."""
    if _stock:
        _say_once(guard, what, _stock)


@functools.cache
def _say_once(guard: str, what: str, architecture: str) -> None:
    logger.warning(
        "%s: the plugin %s, unlike fairseq alone (the guard %s; %s=%s leaves it out)",
        architecture,
        what,
        guard,
        WITHOUT,
        guard,
    )
