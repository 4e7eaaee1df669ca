"""Settings that ``TransformerConfig`` does not know are lost if they come from a config of hydra.

Since fairseq 0.12. ``TransformerConfig.from_namespace`` keeps what it does not know, as models that extend
fairseq's need, but looks for it among the attributes of its argument, where a DictConfig keeps its own
state. Unnecessary once fairseq takes a DictConfig's entries.
"""

from argparse import Namespace

from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf

from .installing import around


@around(TransformerConfig, "from_namespace")
def from_namespace(convert, cls, args):
    """Take the entries of a DictConfig as a Namespace."""
    if isinstance(args, DictConfig):
        args = Namespace(**{name: args[name] for name in args if not OmegaConf.is_missing(args, name)})
    return convert(cls, args)
