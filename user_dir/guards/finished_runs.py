"""Repeating the command of a finished run makes one update beyond ``--max-update``.

fairseq (0.12.2 and later) checks the number of updates only after making one. Unnecessary once
``fairseq_cli.train`` checks it before.
"""

import logging

from fairseq import checkpoint_utils

from .installing import around

logger = logging.getLogger(__name__)


@around(checkpoint_utils, "load_checkpoint")
def load_unless_finished(load, cfg, trainer, **iterator):
    """End a run with status 0 if the checkpoint that it resumes from has all its updates."""
    restored = load(cfg, trainer, **iterator)
    updates, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update
    if limit and limit <= updates:
        logger.info("nothing to train: %d updates are done and --max-update is %d", updates, limit)
        raise SystemExit(0)
    return restored
