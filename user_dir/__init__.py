"""Adaptively Sparse Transformers for fairseq: load with ``--user-dir user_dir``."""

import logging

# fairseq, when imported, lets all debugging output through, and imports matplotlib, which has much of it.
for _name in ("matplotlib", "fontTools", "PIL"):
    logging.getLogger(_name).setLevel(logging.WARNING)

from . import models  # noqa: E402  registers the model and its architectures
from .checkpoints import allow_checkpoint_types  # noqa: E402
from .interruptions import guard_training  # noqa: E402

allow_checkpoint_types()
guard_training()

__all__ = ["models"]
