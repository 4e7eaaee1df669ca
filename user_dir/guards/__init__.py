"""All changes to fairseq's behaviour, one module per reason.

Each module says what is wrong, since when, and what would make it unnecessary. Nothing else in this package
patches fairseq or PyTorch. Importing ``user_dir.models`` installs all guards, once per process, except for
those that the environment leaves out (:mod:`.table`).
"""

import importlib
import logging

from .table import GUARDS, Kind, left_out

logger = logging.getLogger(__name__)


def install() -> None:
    """Install all guards, unless already installed, possibly under this package's other name."""
    import fairseq

    if hasattr(fairseq, "guarded_by"):
        return
    fairseq.guarded_by = __name__

    from . import announcing, installing

    without = left_out()
    if without:
        logger.warning("without the guards: %s", ", ".join(sorted(without)))
    installing.install(announcing)
    for guard in GUARDS:
        if guard.name not in without:
            installing.install(importlib.import_module(f".{guard.module}", __name__))


__all__ = ["GUARDS", "Kind", "install"]
