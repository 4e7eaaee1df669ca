"""A short log of trainings on the terminal, if the environment asks for it, as ``train.py`` does.

fairseq fills the terminal with its settings, the model, and log lines of about 400 columns. With
``ADAPTIVELY_SPARSE_LOG=short``, the terminal shows a line per log interval and validation; the log file still
gets everything.
"""

import logging
import os
import re

from fairseq import checkpoint_utils

from ..attention.types import ATTENTION_TYPES
from . import put_around

logger = logging.getLogger(__name__)
VARIABLE, SHORT = "ADAPTIVELY_SPARSE_LOG", "short"
KEPT = ("Loaded checkpoint", "done training", "Stopping training", "early stop", "stopping training")
KEPT += ('{"epoch"',)  # log_format=json
"""Prefixes of fairseq's messages shown on the terminal, besides warnings and our messages."""


def install() -> None:
    """Shorten the output of trainings in this process, if requested by the environment."""
    if os.environ.get(VARIABLE) == SHORT:
        terminal = Terminal(logging.INFO)
        put_around(checkpoint_utils, "verify_checkpoint_directory", terminal.take_over)
        put_around(checkpoint_utils, "load_checkpoint", terminal.start)


class Terminal(logging.Handler):
    """Shows a training on the terminal: fairseq's figures in short, warnings, and selected messages."""

    updates = epochs = 0  # at most; 0 is without a limit

    def take_over(self, verify, save_dir: str) -> None:
        """Replace the handlers that log to the terminal, before fairseq logs its settings."""
        verify(save_dir)  # called by the first worker
        for handler in list(logging.root.handlers):
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                logging.root.removeHandler(handler)
        logging.root.addHandler(self)

    def start(self, load, cfg, trainer, **iterator):
        """Tell what is being trained, and where the full log is."""
        restored = load(cfg, trainer, **iterator)
        common, limits = trainer.cfg.common, trainer.cfg.optimization
        common.log_format = common.log_format or "simple"  # on a terminal fairseq would draw a bar
        self.updates, self.epochs = limits.max_update or 0, limits.max_epoch or 0
        model, settings = trainer.get_model(), trainer.cfg.model
        size = sum(parameter.numel() for parameter in model.parameters())
        name = getattr(settings, "_name", None) or getattr(settings, "arch", "model")
        files = [file.baseFilename for file in logging.root.handlers if hasattr(file, "baseFilename")]
        where = f"; full log: {files[0].removeprefix(os.getcwd() + os.sep)}" if files else ""
        logger.info("training %s (%s parameters) on %s%s", name, f"{size:,}", trainer.device, where)
        if hasattr(model, "alpha_values"):
            logger.info("α: mean over the heads of encoder self-, decoder self- and context attention")
        return restored

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record in short if it is worth a line."""
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        elif trained := re.fullmatch(r"epoch 0*(\d+):\s+\d+ / (\d+) (.*)", text):
            totals = self.updates, self.epochs * int(trained[2])
            text = training_line(trained[1], min(filter(None, totals), default=0), figures(trained[3]))
        elif validated := re.fullmatch(r"epoch 0*(\d+) \| valid on '(.*)' subset \| (.*)", text):
            text = validation_line(validated[1], validated[2], figures(validated[3]))
        elif not (record.name.startswith(__package__.split(".")[0]) or text.startswith(KEPT)):
            return
        print(text, flush=True)


def figures(text: str) -> dict[str, float]:
    """The figures in a line of fairseq's log, ``loss=1.5, ppl=2`` or ``loss 1.5 | ppl 2``, by name."""
    pairs = re.findall(r"(\w+)[= ](-?[\d.]+(?:e[+-]?\d+)?|nan|-?inf)(?:, | \| |$)", text)
    return {name: float(figure) for name, figure in pairs}


def training_line(epoch: str, total: int, values: dict[str, float]) -> str:
    """Update, epoch, loss, perplexity, mean α of each attention type, learning rate and words per second."""
    update = int(values["num_updates"])
    count = f"{update:>{len(str(total))}}/{total}" if total else f"update {update}"
    parts = [count, f"epoch {epoch}", *_shown(values, "loss", "ppl", digits=4)]
    alphas = [values.get(f"alpha_{name}_mean") for name in ATTENTION_TYPES]
    if any(alpha is not None for alpha in alphas):
        parts.append("α " + " ".join("-" if alpha is None else f"{alpha:.2f}" for alpha in alphas))
    parts += _shown(values, "lr", digits=3)
    if "wps" in values:
        parts.append(f"{values['wps']:.0f} words/s")
    return "  ".join(parts)


def validation_line(epoch: str, subset: str, values: dict[str, float]) -> str:
    """Split, update, epoch, loss, perplexity, BLEU if measured, and the best checkpoint metric."""
    best = [name for name in values if name.startswith("best_")]
    shown = _shown(values, "loss", "ppl", "bleu", *best, digits=5)
    return "  ".join([f"{subset}: update {values['num_updates']:.0f}", f"epoch {epoch}", *shown])


def _shown(values: dict[str, float], *names: str, digits: int) -> list[str]:
    return [f"{name.replace('_', ' ')} {values[name]:.{digits}g}" for name in names if name in values]
