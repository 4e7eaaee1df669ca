"""Adaptively Sparse Transformers for fairseq: load with ``--user-dir user_dir``."""

from . import models  # registers the model and its architectures
from .checkpoints import allow_checkpoint_types

allow_checkpoint_types()

__all__ = ["models"]
