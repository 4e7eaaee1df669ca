"""A command with ``--restore-file`` or a reset, if repeated, starts again and overwrites what it did.

fairseq (0.12.2 and later) reads the file of ``--restore-file``, and applies ``--reset-optimizer`` and the
like, whenever a training starts; only ``--finetune-from-model`` and ``--continue-once`` give way to a
``checkpoint_last.pt``. And if the file does not exist, it trains from scratch. Unnecessary once fairseq keeps
in a checkpoint how its training began, and refuses a file that is not there.
"""

import copy
import itertools
import logging
import os
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..errors import UserError, exit_on_user_error
from ..io import same_file
from .checkpoint_files import OPTIMIZER, read_checkpoint
from .installing import around
from .torn_checkpoints import suggesting_another

logger = logging.getLogger(__name__)

DEFAULT = "checkpoint_last.pt"
RESETS = ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader")
OTHERS = ("finetune_from_model", "continue_once")


@around(checkpoint_utils, "load_checkpoint")
def load_or_resume(load, cfg, trainer, **iterator):
    """Resume from ``checkpoint_last.pt`` if it was written by the same command."""
    last = Path(cfg.save_dir) / f"checkpoint_last{trainer.checkpoint_suffix}.pt"
    asked, of_another = _beginning(cfg), False
    if any(asked.values()) and PathManager.isfile(str(last)):
        if _began_so(last, asked):
            advice = f"to begin again with {_flags(asked)}, choose another --save-dir"
            logger.info("resuming from %s, which this command wrote; %s", last, advice)
            cfg = copy.deepcopy(cfg)
            cfg.restore_file = DEFAULT
            for name in RESETS:
                cfg[name] = False
        else:
            of_another = asked["restore_file"] and not same_file(Path(asked["restore_file"]), last)
    with exit_on_user_error():
        _require_file(cfg, trainer, last)
    restored = load(cfg, trainer, **iterator)
    if of_another:
        _set_aside(last, trainer)
    return restored


def _beginning(settings) -> dict:
    """How a command begins a training, unless it resumes one: file and resets; nothing for the defaults."""
    file = settings.get("restore_file")
    return {
        "restore_file": None if file == DEFAULT else file,
        **{name: settings.get(name) or None for name in (*RESETS, *OTHERS)},
    }


def _began_so(last: Path, asked: dict) -> bool:
    """Whether a checkpoint was written by a command that begins in the same way."""
    with suggesting_another(last):
        state = read_checkpoint(last, leave_out=("model", OPTIMIZER))
    settings = (state.get("cfg") or {}).get("checkpoint")
    return isinstance(settings, dict) and _beginning(settings) == asked


def _flags(asked: dict) -> str:
    given = {f"--{name.replace('_', '-')}": value for name, value in asked.items() if value}
    return " ".join(flag if value is True else f"{flag} {value}" for flag, value in given.items())


def _set_aside(last: Path, trainer) -> None:
    """Keep the last checkpoint of another command, which would be overwritten."""
    if trainer.data_parallel_rank == 0:
        names = (last.with_name(f"{last.name}.{number}") for number in itertools.count(1))
        kept = next(name for name in names if not os.path.lexists(name))
        last.rename(kept)
        logger.warning("%s is of another command; it is kept as %s", last, kept.name)


def _require_file(cfg, trainer, last: Path) -> None:
    """Raise UserError if the file to begin with is not there."""
    name, file = "--restore-file", cfg.restore_file
    if file == DEFAULT:
        name, file = "--continue-once", getattr(cfg, "continue_once", None)
        if file is None or PathManager.isfile(str(last)):
            return
    elif trainer.checkpoint_suffix:
        file = file.replace(".pt", f"{trainer.checkpoint_suffix}.pt")
    if not PathManager.isfile(file) and not same_file(Path(file), last):  # which no first start has
        raise UserError(f"there is no file {file} to begin with; check {name}")
