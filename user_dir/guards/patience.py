"""A resumed run forgets how long validation has not improved, so ``--patience`` may never be reached.

fairseq (0.12.2 and later) stores the best value and the number of validations since then in attributes of a
function, not in checkpoints: a run that is resumed more often than every ``--patience`` epochs never stops
early, and one that has stopped early continues when its command is repeated. Unnecessary once
``fairseq_cli.train`` saves and restores both.
"""

import logging
import math
import sys
from collections.abc import Callable

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from .announcing import acted
from .installing import around

logger = logging.getLogger(__name__)

KEY = "patience"


@around(Trainer, "save_checkpoint")
def save_with_patience(save, self, filename, extra_state):
    """Save both in every checkpoint."""
    for function in _counters():
        if hasattr(function, "best"):
            # As plain numbers, because fairseq's may be numpy's.
            state = {"best": float(function.best), "validations": int(function.num_runs)}
            state["metric"] = self.cfg.checkpoint.best_checkpoint_metric
            extra_state = {**extra_state, KEY: state}
    return save(self, filename, extra_state)


@around(checkpoint_utils, "load_checkpoint")
def resume_with_patience(resume, cfg, trainer, **iterator):
    """Restore both when resuming, and end a run that has stopped early."""
    restored = resume(cfg, trainer, **iterator)
    if trainer.get_num_updates() == 0:  # a new training, e.g. with --finetune-from-model
        return restored
    kept = _kept((restored[0] or {}).get(KEY), cfg)
    if kept is None:
        return restored
    if cfg.patience > 0:
        acted("patience", "counts validations without improvement on when a run is resumed")
    for function in _counters():
        function.best, function.num_runs = kept
    if 0 < cfg.patience <= kept[1]:
        count = f"{cfg.best_checkpoint_metric} has not improved for {kept[1]} validations"
        logger.info("nothing to train: %s, and --patience is %d", count, cfg.patience)
        raise SystemExit(0)
    return restored


def _counters() -> list[Callable]:
    """The function that counts; in ``python -m fairseq_cli.train`` it is that of ``__main__``."""
    modules = (sys.modules.get(name) for name in ("fairseq_cli.train", "__main__"))
    functions = (getattr(module, "should_stop_early", None) for module in modules)
    return [function for function in functions if callable(function)]


def _kept(state, cfg) -> tuple[float, int] | None:
    """Best value and validations since, if the checkpoint has them for the present metric.

    They are reset together with fairseq's own best value, by ``--reset-optimizer`` and ``--reset-meters``.
    """
    if not isinstance(state, dict) or cfg.reset_optimizer or cfg.reset_meters:
        return None
    best, validations = state.get("best"), state.get("validations")
    if type(best) is not float or math.isnan(best) or type(validations) is not int or validations < 0:
        return None
    return (best, validations) if state.get("metric") == cfg.best_checkpoint_metric else None
