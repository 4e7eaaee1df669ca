"""A checkpoint used with another vocabulary of the same size computes nonsense, in silence.

All versions of fairseq compare only the shapes of parameters: after ``prepare.py --force`` with other pieces,
or with another corpus's data, an old checkpoint resumes, translates and validates. Of a dictionary of another
size, it says only that parameters do not fit. Unnecessary once fairseq keeps fingerprints of its dictionaries
in checkpoints and compares them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from fairseq import checkpoint_utils, tasks, utils
from fairseq.models import FairseqEncoder
from fairseq.trainer import Trainer

from ..errors import UserError, exit_on_user_error
from ..fingerprints import KEY, Vocabulary, fingerprints_of, pieces_file, recorded_in, require_same
from .installing import around


class _Reading:
    """Checkpoints that are being read, and what for.

    Args:
        present: the vocabulary that they are to be used with; None if it is not known yet.
        resumed: the task of a training that goes on.
    """

    def __init__(self, present: Vocabulary | None, resumed=None):
        self.present, self.resumed = present, resumed
        self.read: list[tuple[str, dict]] = []

    def check(self) -> None:
        """Compare what was read so far."""
        if self.present is None:
            return
        for path, state in self.read:
            if self.resumed is not None:
                _require_same_languages(state, path, self.resumed)
            require_same(state, path, self.present)
            if recorded_in(state, path) is None:
                _check_sizes(state, path, self.present)
        self.read.clear()


_reading: ContextVar[_Reading | None] = ContextVar("_reading", default=None)


@contextmanager
def _reading_for(present: Vocabulary | None, resumed=None) -> Iterator[None]:
    token = _reading.set(_Reading(present, resumed))
    try:
        yield
    finally:
        _reading.reset(token)


def vocabulary_of(task) -> Vocabulary | None:
    """The vocabulary of one of fairseq's tasks; None if it has no dictionaries."""
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    folder = getattr(settings, "data", None)
    folder = Path(utils.split_paths(folder)[0]) if isinstance(folder, str) and folder else None
    if isinstance(getattr(task, "dicts", None), dict):  # several languages
        dictionaries = {**task.dicts}
        languages = {name: name for name in dictionaries}
    else:
        dictionaries = {side: getattr(task, f"{side}_dictionary", None) for side in ("source", "target")}
        languages = {side: getattr(settings, f"{side}_lang", None) for side in dictionaries}
    dictionaries = {name: each for name, each in dictionaries.items() if hasattr(each, "pad")}
    if not dictionaries:
        return None
    if folder is None:
        return fingerprints_of(dictionaries, {}, None)
    names = {name: ".".join(filter(None, ("dict", languages[name], "txt"))) for name in dictionaries}
    return fingerprints_of(dictionaries, {name: folder / names[name] for name in names}, pieces_file(folder))


def _check_sizes(state: dict, path: str, present: Vocabulary) -> None:
    """What can be checked of a checkpoint that was written without fingerprints."""
    embeddings = {side: state["model"].get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder")}
    used = {"encoder": "source", "decoder": "source" if embeddings["encoder"] is None else "target"}
    for side, embedding in embeddings.items():
        symbols = present.sizes.get(used[side])
        if embedding is not None and symbols is not None and len(embedding) != symbols:
            raise UserError(
                f"{path} was trained with {len(embedding)} symbols, but "
                f"{present.files.get(used[side], 'the dictionary')} has {symbols}; "
                "use the data that it was trained with"
            )


def _require_same_languages(state: dict, path: str, task) -> None:
    """Of a training that is resumed; one that is fine-tuned may have others."""
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    trained = (state.get("cfg") or {}).get("task") or {}
    theirs, ours = (
        [getattr(each, f"{side}_lang", None) for side in ("source", "target")] for each in (trained, settings)
    )
    if theirs != ours and None not in (*theirs, *ours):
        raise UserError(
            f"{path} was trained from {theirs[0]} to {theirs[1]}, not from {ours[0]} to {ours[1]}; to begin "
            "another training with its parameters, give it as --finetune-from-model"
        )


@around(checkpoint_utils, "load_checkpoint_to_cpu")
def load_checkpoint_to_cpu(read, path, *args, **kwargs):
    """Compare a checkpoint with the vocabulary that it is read for, where that is known."""
    state, reading = read(path, *args, **kwargs), _reading.get()
    if reading is not None:
        reading.read.append((path, state))
        reading.check()
    return state


@around(tasks, "setup_task")
def setup_task(setup, *args, **kwargs):
    """Compare the checkpoints that have been read for a task that is only now set up."""
    task, reading = setup(*args, **kwargs), _reading.get()
    if reading is not None and reading.present is None:
        reading.present = vocabulary_of(task)
        reading.check()
    return task


@around(checkpoint_utils, "load_model_ensemble_and_task")
def load_model_ensemble_and_task(load, filenames, arg_overrides=None, task=None, *args, **kwargs):
    """Read models for a task."""
    with _reading_for(None if task is None else vocabulary_of(task)):
        return load(filenames, arg_overrides, task, *args, **kwargs)


@around(checkpoint_utils, "load_pretrained_component_from_model")
def load_pretrained_component_from_model(load, component, *args, **kwargs):
    """Read one side of a model, for its dictionary."""
    dictionary = getattr(component, "dictionary", None)
    side = "source" if isinstance(component, FairseqEncoder) else "target"
    known = {} if dictionary is None else {side: dictionary}
    with _reading_for(fingerprints_of(known, {}, None)):
        return load(component, *args, **kwargs)


@around(Trainer, "__init__")
def init_with_vocabulary(init, self, cfg, task, *args, **kwargs):
    """Take the fingerprints now, since the files may change while the training goes on."""
    init(self, cfg, task, *args, **kwargs)
    self.vocabulary = vocabulary_of(task)


@around(Trainer, "load_checkpoint")
def resume(load, self, filename, reset_optimizer=False, *args, **kwargs):
    """Read a checkpoint for the task of a training."""
    with exit_on_user_error(), _reading_for(self.vocabulary, None if reset_optimizer else self.task):
        return load(self, filename, reset_optimizer, *args, **kwargs)


@around(Trainer, "state_dict")
def state_with_vocabulary(state_dict, self):
    """Keep fingerprints in every checkpoint."""
    kept = {} if self.vocabulary is None else {KEY: self.vocabulary.recorded()}
    return {**state_dict(self), **kept}
