"""Checkpoints of fairseq: read without running code, written whole, and resumed as if never stopped."""

import copy
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fairseq import checkpoint_utils, utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from ..checkpoints import (
    KEY,
    Vocabulary,
    fingerprints_of,
    forget_files,
    pieces_file,
    read_checkpoint,
    require_same,
    save_checkpoint,
)
from ..errors import UserError, one_line
from ..files import copy_file, locked
from . import around

logger = logging.getLogger(__name__)

# --------------------------------------------------------------------- reading without running code

NEEDLESS = {"bert", "encoder_embed_path", "decoder_embed_path"}
"""Settings that name files which initialised a model; reading a checkpoint does not need these files."""


class _TorchThatChecks:
    """``torch`` for fairseq's ``checkpoint_utils``, which reads all checkpoints with ``torch.load``."""

    def __getattr__(self, name: str):
        return getattr(torch, name)

    @staticmethod
    def load(file, *args, **kwargs) -> dict:
        return forget_files(read_checkpoint(file.name), NEEDLESS)


def install() -> None:
    """Let fairseq read checkpoints with our reader; its own refuses checkpoints with NumPy scalars."""
    checkpoint_utils.torch = _TorchThatChecks()


@around(checkpoint_utils, "load_checkpoint_to_cpu")
def read(load, path: str, *args, **kwargs) -> dict:
    """Compare a checkpoint with the vocabulary that it is read for."""
    state = load(path, *args, **kwargs)
    if _compare is not None:
        _compare(state, path)
    return state


# ------------------------------------------------------------------------------------ written whole
# fairseq overwrites checkpoint_last.pt in place: a run that is killed meanwhile cannot resume.


@around(checkpoint_utils, "torch_persistent_save")
def save(_, state: dict, filename: str, async_write: bool = False) -> None:
    """Write a checkpoint atomically, or end the run: to train for days without saving would be worse."""
    save_checkpoint(state, filename)


@around(PathManager, "copy")
def copy_atomically(_, src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    """Copy a checkpoint atomically."""
    copy_file(src_path, dst_path)
    return True


_lock = ExitStack()


@around(checkpoint_utils, "verify_checkpoint_directory")
def begin_training(verify, save_dir: str) -> None:
    """Lock the folder as long as this process trains in it, and remove what killed runs have left.

    Two trainings in one folder would overwrite each other's checkpoints and write one α log.
    """
    verify(save_dir)
    _lock.close()  # of an earlier training of this process
    _lock.enter_context(locked(Path(save_dir), "training in"))
    for torn in Path(save_dir).glob("checkpoint*.pt.*.tmp"):
        torn.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------- vocabularies
# fairseq compares only the shapes of parameters: with other pieces or another corpus, it computes nonsense.

_compare: Callable[[dict, str], None] | None = None
"""To be called with each checkpoint that fairseq reads, and its path."""


def _comparing(compare: Callable[[dict, str], None]):
    """Call ``compare`` while a block of code reads checkpoints."""
    return patch.object(sys.modules[__name__], "_compare", compare)


def vocabulary_of(task) -> Vocabulary | None:
    """The vocabulary of one of fairseq's tasks; None if it has none, or many languages."""
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    dictionaries, files = {}, {}
    for side in () if hasattr(task, "dicts") else ("source", "target"):
        words = getattr(task, f"{side}_dictionary", None)
        if words is not None:
            language = getattr(settings, f"{side}_lang", None)
            dictionaries[side] = words
            files[side] = f"dict.{language}.txt" if language else "dict.txt"
    if not dictionaries:
        return None
    if not getattr(settings, "data", None):
        return fingerprints_of(dictionaries, {}, None)
    folder = Path(utils.split_paths(settings.data)[0])
    paths = {side: folder / name for side, name in files.items()}
    return fingerprints_of(dictionaries, paths, pieces_file(folder))


@around(checkpoint_utils, "load_model_ensemble_and_task")
def load_models(load, filenames, arg_overrides=None, task=None, *args, **kwargs):
    """Compare models with the vocabulary of their task, which may be set up only after they are read."""
    present, seen = vocabulary_of(task), []

    def compare(state: dict, path: str) -> None:
        seen.append(({KEY: state.get(KEY)}, path))
        require_same(state, path, present)

    with _comparing(compare):
        loaded = load(filenames, arg_overrides, task, *args, **kwargs)
    present = vocabulary_of(loaded[2])
    for state, path in seen:
        require_same(state, path, present)
    return loaded


@around(Trainer, "__init__")
def init_with_vocabulary(init, self, cfg, task, *args, **kwargs):
    """Take the fingerprints now, since the files may change while the training goes on."""
    init(self, cfg, task, *args, **kwargs)
    self.vocabulary = vocabulary_of(task)


@around(Trainer, "state_dict")
def state_with_vocabulary(state_dict, self):
    """Keep fingerprints in every checkpoint."""
    kept = {} if self.vocabulary is None else {KEY: self.vocabulary.recorded}
    return {**state_dict(self), **kept}


@around(Trainer, "load_checkpoint")
def resume(load, self, *args, **kwargs):
    """Compare the checkpoint that a training begins or goes on with."""
    try:
        with _comparing(lambda state, path: require_same(state, path, self.vocabulary)):
            return load(self, *args, **kwargs)
    except (AssertionError, KeyError) as error:  # another scheduler: KeyError 'best'
        raise UserError(
            f"cannot resume {args[0]} with another optimizer, lr_scheduler or criterion; keep them, or add "
            f"--reset-optimizer --reset-lr-scheduler ({type(error).__name__}: {one_line(error)})"
        ) from error


# ----------------------------------------------------------------------------------------- resuming

PATIENCE = "patience"
"""Where a checkpoint keeps the best value of early stopping, and the number of validations since then."""


@around(Trainer, "save_checkpoint")
def save_with_patience(save, self, filename, extra_state):
    """Save what ``--patience`` counts, which fairseq keeps in attributes of a function."""
    if isinstance(sys.exc_info()[1], UserError):  # for which fairseq would write a crash.pt
        return None
    for function in _counters():
        if hasattr(function, "best"):
            state = {"best": float(function.best), "validations": int(function.num_runs)}
            state["metric"] = self.cfg.checkpoint.best_checkpoint_metric
            extra_state = {**extra_state, PATIENCE: state}
    return save(self, filename, extra_state)


@around(checkpoint_utils, "load_checkpoint")
def load_unless_finished(load, cfg, trainer, **iterator):
    """Go on counting for ``--patience``; end a run that has stopped early, or has made all its updates.

    fairseq itself compares updates with ``--max-update`` only after one more update.
    """
    restored = load(cfg, trainer, **iterator)
    updates, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update
    if limit and limit <= updates:
        _end(f"{updates} updates are done and --max-update is {limit}")
    state = (restored[0] or {}).get(PATIENCE)
    forgets = updates == 0 or cfg.reset_optimizer or cfg.reset_meters  # as fairseq forgets its best value
    if state and not forgets and state["metric"] == cfg.best_checkpoint_metric:
        for function in _counters():
            function.best, function.num_runs = state["best"], state["validations"]
        if 0 < cfg.patience <= state["validations"]:
            count = f"{state['metric']} has not improved for {state['validations']} validations"
            _end(f"{count}, and --patience is {cfg.patience}")
    return restored


def _counters() -> list[Any]:
    """The function that counts; in ``python -m fairseq_cli.train`` it is that of ``__main__``."""
    modules = (sys.modules.get(name) for name in ("fairseq_cli.train", "__main__"))
    functions = (getattr(module, "should_stop_early", None) for module in modules)
    return [function for function in functions if callable(function)]


def _end(reason: str) -> None:
    logger.info("nothing to train: %s", reason)
    raise SystemExit(0)


LAST = "checkpoint_last.pt"
RESETS = ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader")


@around(checkpoint_utils, "load_checkpoint")
def load_or_resume(load, cfg, trainer, **iterator):
    """Resume from ``checkpoint_last.pt`` if the same command wrote it.

    fairseq reads the file of ``--restore-file``, and applies resets, whenever a training starts, so that a
    repeated command starts again and overwrites what it did. Without the file, it trains from scratch.
    """
    last = Path(cfg.save_dir) / f"checkpoint_last{trainer.checkpoint_suffix}.pt"
    asked = _beginning(cfg)
    if any(asked.values()) and last.is_file():
        settings = (read_checkpoint(last).get("cfg") or {}).get("checkpoint") or {}
        if _beginning(settings) == asked:
            logger.info("resuming from %s, which this command wrote", last)
            cfg = copy.deepcopy(cfg)
            cfg.restore_file = LAST
            for name in RESETS:
                cfg[name] = False
    file = Path(cfg.restore_file)
    if cfg.restore_file != LAST and not file.is_file() and file.resolve() != last.resolve():
        raise SystemExit(f"error: there is no file {file} to begin with")
    return load(cfg, trainer, **iterator)


def _beginning(settings) -> dict:
    """How a command begins a training, unless it resumes one: file and resets; None for each default."""
    file = settings.get("restore_file")
    others = {name: settings.get(name) or None for name in (*RESETS, "finetune_from_model")}
    return {"restore_file": None if file == LAST else file, **others}
