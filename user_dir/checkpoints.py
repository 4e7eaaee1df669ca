"""Checkpoints: reading, writing and averaging them, and fingerprints of their vocabularies.

A checkpoint may come from a stranger, so reading it runs no code: its pickle may contain only data (torch's
``weights_only``), and its settings must be plain values, none of which is code that fairseq would evaluate.

A model used with another vocabulary computes nonsense, even if the sizes match. A checkpoint therefore has
fingerprints of the vocabulary that it was trained with, and whatever uses the checkpoint compares them.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from argparse import Namespace
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .errors import UserError
from .files import atomic_write, shown

OPTIMIZER = "last_optimizer_state"
"""Where fairseq keeps the state of the optimizer, which is most of a checkpoint."""
AVERAGED = "averaged"
"""Where an average of several checkpoints keeps their numbers of updates, in a list."""
KEY = "vocabulary"
"""Where a checkpoint keeps fingerprints: ``{"dictionaries": {NAME: SHA256}, "pieces": SHA256 or None}``."""

# ------------------------------------------------------------------------------------------ reading

_EVALUATED = """
adafactor_eps adam_betas adamax_betas lamb_betas wer_args character_filters adaptive_input_cutoff
adaptive_softmax_cutoff left_pad_source left_pad_target encoder_layers decoder_layers encoder_attention
decoder_attention self_attention gated_attention project_input downsample pretrained
conv_aggregator_layers conv_feature_layers feature_encoder_spec xformers_att_config
encoder_xformers_att_config decoder_xformers_att_config pipeline_balance pipeline_encoder_balance
pipeline_decoder_balance pipeline_devices pipeline_encoder_devices pipeline_decoder_devices
"""
EVALUATED = frozenset(_EVALUATED.split())
"""Names of the settings that fairseq evaluates as Python; a test searches fairseq's source for them."""
FILES = {"data", "user_dir", "bert", "alpha_log", "encoder_embed_path", "decoder_embed_path", "save_dir"}
FILES |= {"bpe_dropout_model", "restore_file", "finetune_from_model", "tensorboard_logdir", "log_file"}
"""Settings that name files of the training, which translation does not need."""
_PLAIN = (dict, list, tuple, Namespace, str, bool, int, float, type(None))


class _NumpyType:
    """A dtype as a pickle builds it; the state of numpy's own class can turn bytes into pointers."""

    def __init__(self, name: str, *flags: bool):
        if not re.fullmatch("[biuf][1-8]", name):
            raise ValueError(f"a checkpoint has no numbers of numpy's type {name!r}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _NumpyArray(np.ndarray):
    """An array as a pickle builds it: created empty, then filled by ``__setstate__``."""

    def __setstate__(self, state: tuple) -> None:
        version, shape, kind, by_columns, content = state
        super().__setstate__((version, shape, kind.dtype, by_columns, content))

    def __reduce_ex__(self, protocol: int):
        return np.array(self, subok=False).__reduce_ex__(protocol)  # saved as a numpy array


def _numpy_number(kind: _NumpyType, content: bytes) -> np.generic:
    return np.frombuffer(content, kind.dtype)[0]


def _numpy_array(kind: type, shape: tuple, code: bytes) -> _NumpyArray:
    return np.empty(0).view(_NumpyArray)


# ``--eval-bleu`` stores numpy scalars; numpy 1 and 2 have different names for the functions that build them.
_BUILDERS = [(Namespace, "argparse.Namespace"), (_NumpyType, "numpy.dtype"), (_NumpyArray, "numpy.ndarray")]
for core in ("numpy.core", "numpy._core"):
    _BUILDERS += [
        (_numpy_number, f"{core}.multiarray.scalar"),
        (_numpy_array, f"{core}.multiarray._reconstruct"),
    ]
torch.serialization.add_safe_globals(_BUILDERS)


def read_checkpoint(path: str | Path) -> dict:
    """Read a fairseq checkpoint on the CPU, into memory of its own: later changes of the file do not matter.

    Raises:
        UserError: the file is missing, truncated or not a fairseq checkpoint, could run code, or has a
            parameter that is not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no checkpoint {path}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=False)
        cfg, args, model = state.get("cfg"), state.get("args"), state.get("model")
        danger = _danger([cfg, args])
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:  # of any kind, if the file is corrupt
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        if code is None:
            raise UserError(f"{path} is not a checkpoint of fairseq, or is cut short") from None
        danger = f"it holds {code[1]}, which is not data"
    if danger is not None:
        raise UserError(f"{path} is refused, because it could run code: {danger}")
    settings = isinstance(args, Namespace) or (isinstance(cfg, dict) and {"model", "task"} <= cfg.keys())
    parameters = isinstance(model, dict) and all(isinstance(value, Tensor) for value in model.values())
    if not (parameters and settings):
        raise UserError(f"{path} is not a checkpoint of fairseq: it has no parameters or no settings")
    require_finite(model, str(path))
    return state


def _danger(value, name="settings") -> str | None:
    """Describe the first setting, if any, that is not plain or that fairseq or OmegaConf would evaluate."""
    if type(value) not in _PLAIN or type(name) is not str:
        return f"its setting {name} is a {type(value).__name__}"
    if isinstance(value, str):
        evaluated = "${" in value or (name in EVALUATED and not is_literal(value))
        return f"its setting {name} is {shown(value)}" if evaluated else None
    items = [(name, item) for item in value] if isinstance(value, (list, tuple)) else _as_dict(value).items()
    return next(filter(None, (_danger(item, key) for key, item in items)), None)


def is_literal(text: str) -> bool:
    """Whether text is a Python literal, which can be evaluated without running code."""
    try:
        ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True


def load_checkpoint(path: str | Path) -> dict:
    """Load a checkpoint to the CPU without the state of its optimizer; raises as :func:`read_checkpoint`.

    ``cfg`` is built from ``args`` for checkpoints by old versions of fairseq, which lack it.
    """
    state = read_checkpoint(path)
    state[OPTIMIZER] = None
    if state.get("cfg") is None:
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from omegaconf import OmegaConf

        cfg = convert_namespace_to_omegaconf(state["args"])
        state["cfg"] = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
        state["args"] = None  # else fairseq would use it instead
    return state


def require_finite(parameters: Mapping[str, Tensor], what: str) -> None:
    """Raise UserError, about ``what``, unless all parameters are finite.

    ``_float_tensor`` is not checked: fairseq uses only its dtype and leaves its memory uninitialised.
    """
    for name, value in parameters.items():
        if not name.endswith("_float_tensor") and not torch.isfinite(value).all():
            raise UserError(f"{what} is unusable: its {name} has values that are not finite")


# ----------------------------------------------------------------------------------------- settings


def model_name(state: dict) -> str:
    """The architecture that a checkpoint was trained with, such as ``adaptively_sparse_transformer_tiny``."""
    settings = model_settings(state)
    return settings.get("_name") or settings.get("arch") or "unknown"


def model_settings(state: dict) -> dict:
    """The model settings of a checkpoint, written by either of fairseq's two training commands."""
    return dict(_as_dict(state["cfg"]["model"]))


def task_settings(state: dict) -> dict:
    """The task settings of a checkpoint, including the languages."""
    return dict(_as_dict(state["cfg"]["task"]))


def _as_dict(settings) -> dict:
    settings = vars(settings) if isinstance(settings, Namespace) else settings
    return settings if isinstance(settings, dict) else {}


def num_updates(state: dict) -> int:
    """The number of updates in a checkpoint's training."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def forget_files(state: dict, names: Set[str] = FILES) -> dict:
    """Set settings that name files to None, in place."""
    for section in (state.get("args"), *(state.get("cfg") or {}).values()):
        settings = _as_dict(section)
        settings.update(dict.fromkeys(names & settings.keys()))
    return state


# ------------------------------------------------------------------------------------------ writing


def save_checkpoint(state: dict, path: str | Path) -> None:
    """Write a checkpoint to a temporary file, then rename it; raises UserError if the system refuses."""
    with atomic_write(path) as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # raised by torch while it handles the actual error
            raise error.__context__ or OSError(str(error)) from None


# Sections of settings that say how a model was trained; the others are about machines or other commands.
_TRAINING = ("model", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset", "ema")
_TRAINING += ("common", "checkpoint")


def for_inference(state: dict) -> dict:
    """What translation needs of a checkpoint, and how it was trained; without optimizer state and file names.

    Equal parameters, such as tied embeddings that were averaged, are stored once.

    Args:
        state: from :func:`load_checkpoint`; it is not changed.
    """
    cfg = copy.deepcopy({name: state["cfg"][name] for name in _TRAINING if name in state["cfg"]})
    processes = (state["cfg"].get("distributed_training") or {}).get("distributed_world_size", 1)
    cfg["distributed_training"] = {"distributed_world_size": processes}
    epoch = ((state.get("extra_state") or {}).get("train_iterator") or {}).get("epoch", 1)
    model: dict[str, Tensor] = {}
    for name, value in state["model"].items():
        equal = (kept for kept in model.values() if kept.dtype == value.dtype and torch.equal(kept, value))
        stored = next(equal, None)
        model[name] = value.contiguous().clone() if stored is None else stored
    history = {key: value for key, value in state["optimizer_history"][-1].items() if key != "optimizer"}
    inference = {"args": None, "cfg": cfg, "model": model, OPTIMIZER: None, "optimizer_history": [history]}
    inference["extra_state"] = {"train_iterator": {"epoch": epoch}}
    return forget_files(inference | {name: state[name] for name in (KEY, AVERAGED) if name in state})


# ---------------------------------------------------------------------------------------- averaging


def last_checkpoints(folder: str | Path, count: int) -> list[Path]:
    """The ``count`` latest checkpoints in ``folder``, of those at the ends of epochs N (checkpointN.pt).

    ``checkpoint_last.pt`` counts, too, if it has more updates than the last of these.
    """
    named = ((re.fullmatch(r"checkpoint(\d+)\.pt", path.name), path) for path in Path(folder).glob("*.pt"))
    paths = [path for _, path in sorted((int(match[1]), path) for match, path in named if match)]
    if len(paths) < count:
        raise UserError(f"{folder} has {len(paths)} checkpoints of epochs (checkpointN.pt), not {count}")
    last = Path(folder) / "checkpoint_last.pt"
    if last.is_file() and num_updates(load_checkpoint(last)) > num_updates(load_checkpoint(paths[-1])):
        paths.append(last)
    return paths[-count:]


def average_checkpoints(paths: list[Path], ema: bool = False) -> dict:
    """Average the parameters of checkpoints, in float64; all else is taken from the last of ``paths``.

    The optimizer's state is dropped, because that of one checkpoint does not match averaged parameters.
    Integer counters are those of the last checkpoint. α is averaged through its parameter a. An average of
    several checkpoints lists their numbers of updates under :data:`AVERAGED`.

    Args:
        paths: checkpoints of one training.
        ema: average the moving averages of the parameters that fairseq stores with ``--store-ema``.

    Raises:
        UserError: a checkpoint has no finite moving average, or they are of different models or vocabularies.
    """
    from tqdm import tqdm

    state, total, updates = {}, {}, []
    for path in tqdm(paths, desc="averaging", unit="checkpoint", disable=None):
        before, state = state, load_checkpoint(path)
        if None not in (before.get(KEY), state.get(KEY)) and before[KEY] != state[KEY]:
            raise UserError(f"{path} and {paths[len(updates) - 1]} were trained with different vocabularies")
        updates.append(num_updates(state))
        extra = state.get("extra_state") or {}
        moving = extra.pop("ema", None)
        extra.pop("ema_fp32_params", None)
        if ema:
            if moving is None:
                raise UserError(f"{path} has no moving average of its parameters; train with --store-ema")
            require_finite(moving, f"the moving average in {path}")
            state["model"] = moving
        floating = {name: value for name, value in state["model"].items() if value.is_floating_point()}
        shapes = {name: value.shape for name, value in floating.items()}
        if total and shapes != {name: value.shape for name, value in total.items()}:
            raise UserError(f"{path} and {paths[0]} are of different models and cannot be averaged")
        for name, value in floating.items():
            total[name] = total.get(name, 0) + value.double()
    for name, value in total.items():
        state["model"][name] = (value / len(paths)).to(state["model"][name].dtype)
    return {**state, AVERAGED: updates} if len(paths) > 1 else state


# --------------------------------------------------------------------------------------- vocabulary

INSIDE = ("spm.model", "vocab.txt", "sentencepiece.bpe.model", "bpecodes", "code", "merges.txt")
"""Names of the pieces' file inside a data folder: ours, and those that fairseq's hub looks for."""


class Vocabulary(NamedTuple):
    """Fingerprints of the vocabulary in a data folder."""

    recorded: dict[str, Any]  # what a checkpoint keeps under :data:`KEY`
    files: dict[str, str]  # the file of each fingerprint, for error messages
    symbols: dict[str, str]  # the symbols of each dictionary, one per line


def fingerprints_of(
    dictionaries: Mapping[str, Any], files: Mapping[str, Path], pieces: Path | None
) -> Vocabulary:
    """The fingerprints of fairseq dictionaries, without their counts, and of the pieces' file.

    Args:
        dictionaries: by side (``source``, ``target``); each has a length and symbols by index.
        files: of the dictionaries, by the same names.
        pieces: from :func:`pieces_file`.
    """
    symbols = {name: "\n".join(words[i] for i in range(len(words))) for name, words in dictionaries.items()}
    digests = {name: _digest(text.encode("utf-8", "surrogatepass")) for name, text in symbols.items()}
    recorded = {"dictionaries": digests, "pieces": None if pieces is None else _digest(pieces.read_bytes())}
    paths = {name: str(path) for name, path in {**files, "pieces": pieces}.items()}
    return Vocabulary(recorded, paths, symbols)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pieces_file(folder: Path) -> Path | None:
    """The file that splits the text of a data folder into pieces; None if only dictionaries are there.

    It is inside the folder, or, in a corpus by ``prepare.py``, beside it.
    """
    parent = folder.parent
    places = [folder / name for name in INSIDE]
    if (parent / "corpus.yaml").is_file() or (parent / "bin" / "stamp.json").is_file():
        places += [parent / "spm.model", parent / "text" / "tokenizer.json", parent / "text" / "vocab.txt"]
    return next((path for path in places if path.is_file()), None)


def require_same(state: dict, checkpoint: str | Path, present: Vocabulary | None) -> None:
    """Raise UserError, with the names of both files, if a checkpoint was trained with another vocabulary.

    Only fingerprints that both have are compared: a checkpoint or a task may have none, data may lack pieces.
    """
    if state.get(KEY) is None or present is None:
        return
    both = state[KEY], present.recorded
    before, now = ({**record["dictionaries"], "pieces": record["pieces"]} for record in both)
    for name in now:
        if None not in (before.get(name), now[name]) and before[name] != now[name]:
            file = present.files.get(name, f"the {name} dictionary")
            symbols = present.symbols.get(name, "")
            shorter, _, last = symbols.rpartition("\n")
            for others, added in ((shorter, f"without {last}"), (f"{symbols}\n<mask>", "with <mask>")):
                if _digest(others.encode("utf-8", "surrogatepass")) == before[name]:
                    raise UserError(f"{checkpoint} was trained {added}, which a task adds to {file}")
            raise UserError(
                f"{checkpoint} was trained with another vocabulary than that of {file} (fingerprint "
                f"{before[name][:12]} in training, {now[name][:12]} now); use the data of its training"
            )
