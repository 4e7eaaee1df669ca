"""The command of a finished run, given again, makes one update beyond ``--max-update``.

fairseq looks at the number of updates only after it has made one, in 0.12.2 and later. Unnecessary once
``fairseq_cli.train`` looks before.
"""

from __future__ import annotations

import functools
import logging

from fairseq import checkpoint_utils

logger = logging.getLogger(__name__)


def install() -> None:
    """End a run with status 0 where the checkpoint it resumes from has all its updates."""
    resume = checkpoint_utils.load_checkpoint

    @functools.wraps(resume)
    def resume_unless_finished(cfg, trainer, **iterator):
        restored = resume(cfg, trainer, **iterator)
        updates, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update
        if limit and limit <= updates:
            logger.info("nothing to train: %d updates are made, and --max-update is %d", updates, limit)
            raise SystemExit(0)
        return restored

    checkpoint_utils.load_checkpoint = resume_unless_finished
