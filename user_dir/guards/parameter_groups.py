"""fairseq's optimizer ``composite`` ends with a traceback for parameters of a group without settings.

A parameter names its group: those that start from a BERT are in ``bert``, those of α in ``alpha``, all others
in ``default``. fairseq (0.12.2 and later) asks for settings of exactly these groups, so that a config with
``bert`` and ``default`` cannot be trained with a learned α, and ignores settings of groups without
parameters. With ``--fp16``, all parameters become one, which has no group. A second optimizer of a process
also steps the parameters of the first. Unnecessary once fairseq takes the settings of ``default`` for groups
that have none, and names those that are missing.
"""

import logging

from fairseq.optim.composite import FairseqCompositeOptimizer

from ..errors import UserError
from .installing import around

DEFAULT = "default"
logger = logging.getLogger(__name__)


@around(FairseqCompositeOptimizer, "__init__")
def build(build, self, cfg, params):
    """Build the optimizer, with parameters of groups without settings in the group ``default``."""
    params = list(params)
    if len(params) == 1:
        raise UserError(
            "the optimizer composite got all parameters as one, as fairseq joins them for fp16; "
            "set common.fp16_no_flatten_grads=true, or use bf16"
        )
    if not cfg.dynamic_groups:
        _use_default(set(cfg.groups), params)
    self.optimizers, self.lr_schedulers = {}, {}  # instead of the class's, which keeps all groups
    build(self, cfg, params)


def _use_default(named: set[str], params: list) -> None:
    found = {getattr(each, "param_group", DEFAULT) for each in params}
    missing = sorted(found - named)
    if missing and DEFAULT not in named:
        raise UserError(
            f"optimizer.groups has no settings for {', '.join(missing)}; the groups of the parameters "
            f"are {', '.join(sorted(found))}; those without settings of their own take those of {DEFAULT}"
        )
    if missing:
        logger.info("optimizer.groups: %s as %s", ", ".join(missing), DEFAULT)
    if unused := sorted(named - found - {DEFAULT}):
        logger.warning("optimizer.groups: no parameter of this model is in %s", ", ".join(unused))
    for each in params:
        if getattr(each, "param_group", DEFAULT) in missing:
            each.param_group = DEFAULT
