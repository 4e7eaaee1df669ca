"""Adaptively Sparse Transformers for fairseq: load with ``--user-dir user_dir``."""

import logging

# fairseq, when imported, lets all debugging output through, and imports matplotlib, which has much of it.
for _name in ("matplotlib", "fontTools", "PIL"):
    logging.getLogger(_name).setLevel(logging.WARNING)

from . import models  # noqa: E402  registers the model and its architectures
from .loading import guard_fairseq  # noqa: E402

guard_fairseq()
from .memory import guard_memory  # noqa: E402

guard_memory()
from .interruptions import guard_training  # noqa: E402  wraps what the former put in the place of fairseq's

guard_training()

__all__ = ["models"]
