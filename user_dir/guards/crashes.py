"""Errors of fairseq's commands: one line on the terminal, the traceback in the log."""

import logging
import os
import sys
import tempfile
import traceback

STEPS = ("convert_namespace_to_omegaconf", "load_dataset", "build_model", "build_criterion", "train_step")
STEPS += ("_build_optimizer", "load_checkpoint", "load_model_ensemble_and_task", "validate")
LONGEST = 400  # characters of a message that are shown


def install() -> None:
    """Wrap Python's hook for uncaught exceptions, and let hydra leave its exceptions to the hook, too."""
    inner = sys.excepthook
    sys.excepthook = lambda kind, error, trace: report(inner, error)
    if "fairseq_cli.hydra_train" in sys.modules:
        os.environ["HYDRA_FULL_ERROR"] = "1"
        logging.raiseExceptions = False  # else each line of a log on a full disk is a traceback


def report(inner, error: BaseException) -> None:
    """Report the end of one of fairseq's commands in one line; leave other programs to ``inner``."""
    frames = traceback.extract_tb(error.__traceback__)
    steps = [frame.name for frame in frames if "fairseq_cli" in frame.filename]
    if not steps:
        inner(type(error), error, error.__traceback__)
        return
    steps += [frame.name for frame in frames if frame.name in STEPS]
    words = str(error) or frames[-1].line  # an assertion without a message: its code
    if "Traceback (most recent call last)" in words:  # of another process
        words = words.strip().splitlines()[-1]
    line = f"{steps[-1].strip('_').replace('_', ' ')}: {type(error).__name__}: {' '.join(words.split())}"
    print(f"error: {line[:LONGEST]} ({_record(error)})", file=sys.stderr)


def _record(error: BaseException) -> str:
    """Append the traceback to the log of this process, else to a new file; says where it is."""
    loggers = [logging.root, *map(logging.getLogger, logging.root.manager.loggerDict)]
    files = [getattr(handler, "baseFilename", "") for logger in loggers for handler in logger.handlers]
    logs = list(filter(os.path.isfile, files))
    try:
        log = logs[0] if logs else tempfile.mkstemp(prefix="fairseq-", suffix=".log")[1]
        with open(log, "a", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError as refused:
        return f"its traceback could not be written: {refused.strerror}"
    return f"traceback in {log}"
