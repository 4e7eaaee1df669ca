"""Settings that ``TransformerConfig`` does not know are lost if they come from a config of hydra.

Since fairseq 0.12. ``TransformerConfig.from_namespace`` keeps what it does not know, as models that extend
fairseq's need, but looks for it among the attributes of its argument, where a DictConfig keeps its own
state. Unnecessary once fairseq takes a DictConfig's entries.
"""

from __future__ import annotations

import functools
from argparse import Namespace

from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf


def install() -> None:
    """Hand ``from_namespace`` the entries of a DictConfig as a Namespace."""
    from_namespace = TransformerConfig.from_namespace.__func__

    @functools.wraps(from_namespace)
    def kept(cls, args):
        if isinstance(args, DictConfig):
            args = Namespace(**{name: args[name] for name in args if not OmegaConf.is_missing(args, name)})
        return from_namespace(cls, args)

    TransformerConfig.from_namespace = classmethod(kept)
