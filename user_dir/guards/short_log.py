"""A short log of trainings on the terminal, if the environment asks for it, as ``train.py`` does.

fairseq fills the terminal with its settings, the model, and log lines of about 400 columns. With
``ADAPTIVELY_SPARSE_LOG=short``, the terminal shows a line per log interval and validation; the log file still
gets everything.
"""

import logging
import os
from typing import Any

from fairseq import checkpoint_utils
from fairseq.logging import progress_bar

from ..attention.types import ATTENTION_TYPES
from . import put_around

VARIABLE, SHORT = "ADAPTIVELY_SPARSE_LOG", "short"
KEPT = ("Loaded checkpoint", "done training", "Stopping training", "early stop", "stopping training")
"""Prefixes of fairseq's messages shown on the terminal, besides warnings and our messages."""


def install() -> None:
    """Shorten the output of trainings in this process, if requested by the environment."""
    if os.environ.get(VARIABLE) == SHORT:
        run = Run()
        put_around(checkpoint_utils, "verify_checkpoint_directory", run.take_over_terminal)
        put_around(checkpoint_utils, "load_checkpoint", run.start)
        put_around(progress_bar, "progress_bar", run.short_log)


class Run(logging.Handler):
    """The display of a training on the terminal, which also shows selected log messages."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.shown = False  # only in the first worker
        self.trainer: Any = None

    def take_over_terminal(self, verify, save_dir: str) -> None:
        """Replace the handlers that log to the terminal, before fairseq logs its settings."""
        verify(save_dir)  # called by the first worker
        self.shown = True
        for handler in list(logging.root.handlers):
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                logging.root.removeHandler(handler)
        logging.root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Show warnings, our messages, and a few of fairseq's."""
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self.say(f"{record.levelname.lower()}: {text}")
        elif record.name.startswith(__package__.split(".")[0]) or text.startswith(KEPT):
            self.say(text)

    def start(self, load, cfg, trainer, **iterator):
        """Show what is being trained, and where the full log is."""
        restored = load(cfg, trainer, **iterator)
        self.trainer = trainer
        model, settings = trainer.get_model(), trainer.cfg.model
        size = sum(parameter.numel() for parameter in model.parameters())
        name = getattr(settings, "_name", None) or getattr(settings, "arch", "model")
        files = [
            handler.baseFilename for handler in logging.root.handlers if hasattr(handler, "baseFilename")
        ]
        where = f"; full log: {files[0].removeprefix(os.getcwd() + os.sep)}" if files else ""
        self.say(f"training {name} ({size:,} parameters) on {trainer.device}{where}")
        if hasattr(model, "alpha_values"):
            self.say("α: mean over the heads of encoder self-, decoder self- and context attention")
        return restored

    def short_log(self, build, iterator, log_format=None, *rest, **more) -> "ShortLog":
        """Build fairseq's progress bar, and ours around it."""
        whole = build(iterator, log_format or "simple", *rest, **more)
        limits = self.trainer.cfg.optimization
        limits = limits.max_update or 0, (limits.max_epoch or 0) * len(iterator)
        total = min(filter(None, limits), default=0)
        return ShortLog(whole, len(iterator), self, more.get("epoch") or 0, total, more.get("prefix") is None)

    def say(self, text: str) -> None:
        """Print a line."""
        if self.shown:
            print(text, flush=True)


class ShortLog(progress_bar.BaseProgressBar):
    """fairseq's progress bar, which logs to files, with additional short lines for the terminal."""

    def __init__(self, whole, length: int, run: Run, epoch: int, total: int, training: bool):
        self.whole, self.run, self.epoch, self.total, self.training = whole, run, epoch, total, training
        self.length = length  # fairseq's wrappers for TensorBoard and the like have none

    def __len__(self) -> int:
        return self.length

    def __iter__(self):
        return iter(self.whole)

    def log(self, stats, tag=None, step=None) -> None:
        """Log within an epoch; fairseq calls this once per interval."""
        self.whole.log(stats, tag, step)
        self.run.say(training_line(stats, step or 0, self.total, self.epoch))

    def print(self, stats, tag=None, step=None) -> None:
        """Log at the end of an epoch or a validation."""
        self.whole.print(stats, tag, step)
        if not self.training:
            self.run.say(validation_line(stats, tag or "", step or 0, self.epoch))

    def update_config(self, config) -> None:
        """Pass on the settings."""
        self.whole.update_config(config)


def training_line(stats: dict, update: int, total: int, epoch: int) -> str:
    """Update, epoch, loss, perplexity, mean α of each attention type, learning rate and words per second."""
    count = f"{update:>{len(str(total))}}/{total}" if total else f"update {update}"
    parts = [count, f"epoch {epoch}", *_shown(stats, "loss", "ppl", digits=4)]
    alphas = [_number(stats, f"alpha_{name}_mean") for name in ATTENTION_TYPES]
    if any(alpha is not None for alpha in alphas):
        parts.append("α " + " ".join("-" if alpha is None else f"{alpha:.2f}" for alpha in alphas))
    parts += _shown(stats, "lr", digits=3)
    words = _number(stats, "wps")
    if words is not None:
        parts.append(f"{words:.0f} words/s")
    return "  ".join(parts)


def validation_line(stats: dict, subset: str, update: int, epoch: int) -> str:
    """Split, update, epoch, loss, perplexity, BLEU if measured, and the best checkpoint metric."""
    best = [name for name in stats if name.startswith("best_")]
    shown = _shown(stats, "loss", "ppl", "bleu", *best, digits=5)
    return "  ".join([f"{subset}: update {update}", f"epoch {epoch}", *shown])


def _shown(stats: dict, *names: str, digits: int) -> list[str]:
    numbers = {name.replace("_", " "): _number(stats, name) for name in names}
    return [f"{name} {number:.{digits}g}" for name, number in numbers.items() if number is not None]


def _number(stats: dict, name: str) -> float | None:
    return float(progress_bar.format_stat(stats[name])) if name in stats else None
