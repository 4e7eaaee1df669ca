"""Attention maps of whole sentences in an NPZ file, written and read one sentence at a time.

Arrays of sentence i, counted from 0: ``{i}/encoder_self``, ``{i}/decoder_self`` and ``{i}/decoder_context``,
float32 (L, H, T, S) without padding; ``{i}/source``, the source tokens; ``{i}/target_input``, the tokens that
the decoder read, which are its queries (``</s>``, then the target without its last token); ``{i}/target``,
the tokens to predict (the reference, since decoding is teacher-forced); and, if known, ``{i}/text``, the
source before segmentation. Arrays of the file: ``corpus`` and ``subset``, the names of the corpus and split,
and ``alpha/encoder_self`` etc., the α of each head (L, H).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import MAX_STRINGS, Arrays
from ..attention_types import ATTENTION_TYPES
from ..errors import UserError, one_line
from ..io import written_beside

if TYPE_CHECKING:
    from torch import Tensor

MAX_SENTENCE = 512 << 20
"""Bytes of a sentence's arrays, so that with copies of them less than 1 GiB is in memory."""
MAX_ALPHAS = 1 << 20  # bytes; 24 layers of 16 heads have 3,072
_TOKENS = ("source", "target_input", "target")


@dataclass(frozen=True)
class SentenceMaps:
    """The attention of every head on one sentence pair.

    Attributes:
        weights: by attention type, (L, H, T, S) float32; types that the model lacks are omitted.
        source: the S source tokens.
        target_input: the T tokens that the decoder read.
        target: the T tokens that it had to predict.
        text: the source sentence as text, if known.
    """

    weights: dict[str, np.ndarray]
    source: list[str]
    target_input: list[str]
    target: list[str]
    text: str | None = None

    def __post_init__(self):
        """Raise ValueError if tokens and weights do not match."""
        if len(self.target) != len(self.target_input):
            raise ValueError(f"{len(self.target_input)} tokens read, but {len(self.target)} predicted")
        for name, weights in self.weights.items():
            if name not in ATTENTION_TYPES:
                raise ValueError(f"no attention type {name!r}")
            pairs = len(self.queries(name)), len(self.keys(name))
            if weights.ndim != 4 or weights.shape[2:] != pairs:
                raise ValueError(f"{name} has shape {weights.shape}, not (L, H, {pairs[0]}, {pairs[1]})")

    def queries(self, attention_type: str) -> list[str]:
        """The T query tokens."""
        return self.source if attention_type == "encoder_self" else self.target_input

    def keys(self, attention_type: str) -> list[str]:
        """The S key tokens."""
        return self.target_input if attention_type == "decoder_self" else self.source

    def head(self, attention_type: str, layer: int, head: int) -> np.ndarray:
        """Weights (T, S) of one head; raises UserError if it does not exist."""
        if attention_type not in self.weights:
            raise UserError(f"the maps have no {attention_type}; they have {', '.join(self.weights)}")
        weights = self.weights[attention_type]
        layers, heads = weights.shape[:2]
        if not (0 <= layer < layers and 0 <= head < heads):
            raise UserError(
                f"{attention_type} has no layer {layer}, head {head}: "
                f"layers are 0 to {layers - 1} and heads 0 to {heads - 1}"
            )
        return weights[layer, head]


class MapsWriter:
    """Appends sentences to an NPZ file; created by :func:`maps_writer`."""

    def __init__(self, archive: zipfile.ZipFile):
        self._archive = archive
        self.sentences = 0

    def write(self, sentence: SentenceMaps) -> None:
        """Append one sentence."""
        for name, weights in sentence.weights.items():
            self._member(name, np.asarray(weights, dtype=np.float32))
        for name in _TOKENS:
            self._member(name, np.array(getattr(sentence, name), dtype=np.str_))
        if sentence.text is not None:
            self._member("text", np.array(sentence.text, dtype=np.str_))
        self.sentences += 1

    def _member(self, name: str, array: np.ndarray) -> None:
        _write_member(self._archive, f"{self.sentences}/{name}", array)


def _write_member(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


@contextmanager
def maps_writer(
    path: str | Path,
    *,
    corpus: str | None = None,
    subset: str | None = None,
    alphas: dict[str, list[list[float]]] | None = None,
) -> Iterator[MapsWriter]:
    """Open an NPZ file of attention maps to write sentence by sentence.

    Only one sentence is in memory at a time, besides ZIP's table of contents of about a hundred bytes per
    array. The file is replaced only if the body succeeds.

    Args:
        path: the file.
        corpus: name of the sentences' corpus; None if unknown.
        subset: public name of the split.
        alphas: by attention type, the α of each layer and head.
    """
    deflated = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}  # enough for exact zeros
    with written_beside(path) as beside, zipfile.ZipFile(beside, "w", **deflated) as archive:
        for name, value in (("corpus", corpus), ("subset", subset)):
            if value is not None:
                _write_member(archive, name, np.array(value, dtype=np.str_))
        for name, layers in (alphas or {}).items():
            _write_member(archive, f"alpha/{name}", np.array(layers, dtype=np.float64))
        yield MapsWriter(archive)


class Maps:
    """The sentences of an NPZ file of attention maps, read on access: ``maps[3]``, ``len(maps)``.

    Attributes:
        path: the file.
        corpus: name of the sentences' corpus; None if unknown.
        subset: public name of the split; None if unknown.
        alphas: by attention type, the α of each head (L, H); empty if unknown.
    """

    def __init__(self, path: str | Path):
        """Raise UserError if the file does not exist or has no maps."""
        self.path = Path(path)
        if not self.path.is_file():
            raise UserError(f"no attention maps {path}; head_stats.py --dump-attention writes them")
        try:
            self._arrays = Arrays(self.path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is not a file of attention maps: {one_line(error)}") from None
        names = self._arrays.names
        numbers = {int(found.group(1)) for name in names if (found := re.match(r"(\d+)/", name))}
        if not numbers or numbers != set(range(len(numbers))):
            raise UserError(f"{path} has no attention maps: no arrays 0/source, 0/encoder_self etc.")
        self._names = names
        self._sentences = len(numbers)
        try:
            self.corpus, self.subset = (
                str(self._arrays.read(name, MAX_STRINGS)) if name in self._names else None
                for name in ("corpus", "subset")
            )
            self.alphas = {
                name: _alphas(self._arrays.read(f"alpha/{name}", MAX_ALPHAS))
                for name in ATTENTION_TYPES
                if f"alpha/{name}" in self._names
            }
        except Exception as error:  # as above
            raise UserError(f"{path} is corrupt: {one_line(error)}") from None

    def __len__(self) -> int:
        return self._sentences

    def __iter__(self) -> Iterator[SentenceMaps]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> SentenceMaps:
        """Read sentence ``number``; raises UserError if it is out of range or corrupt."""
        if not 0 <= number < len(self):
            raise UserError(f"{self.path} has no sentence {number}: it has sentences 0 to {len(self) - 1}")
        size = sum(map(self._arrays.size, self._of_sentence(number)))
        if size > MAX_SENTENCE:
            raise UserError(
                f"{self.path}: sentence {number} has {size:,} bytes; at most {MAX_SENTENCE:,} are read"
            )
        try:
            text = f"{number}/text"
            return SentenceMaps(
                weights={
                    name: _weights(self._arrays.read(f"{number}/{name}"))
                    for name in ATTENTION_TYPES
                    if f"{number}/{name}" in self._names
                },
                text=str(self._arrays.read(text, MAX_STRINGS)) if text in self._names else None,
                **{name: _tokens(self._arrays.read(f"{number}/{name}", MAX_STRINGS)) for name in _TOKENS},
            )
        except KeyError as error:
            raise UserError(f"{self.path} has a sentence {number}, but no array {error.args[0]}") from None
        except Exception as error:  # as above
            raise UserError(f"{self.path} is corrupt at sentence {number}: {one_line(error)}") from None

    def _of_sentence(self, number: int) -> list[str]:
        """The names of the sentence's arrays."""
        names = (f"{number}/{name}" for name in (*ATTENTION_TYPES, *_TOKENS, "text"))
        return [name for name in names if name in self._names]


def _weights(array: np.ndarray) -> np.ndarray:
    """Validate weights (L, H, T, S); raises ValueError."""
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError("its weights are not finite numbers")
    return array


def _alphas(array: np.ndarray) -> np.ndarray:
    """Validate α's (L, H); raises ValueError."""
    if array.dtype.kind != "f" or array.ndim != 2 or not (np.isfinite(array) & (array >= 1)).all():
        raise ValueError("its α's are not an array of numbers >= 1 by layer and head")
    return array


def _tokens(array: np.ndarray) -> list[str]:
    """Validate tokens; raises ValueError."""
    if array.dtype.kind != "U" or array.ndim != 1:
        raise ValueError("its tokens are not a list of strings")
    return array.tolist()


def bertviz_arguments(sentence: SentenceMaps) -> dict[str, list[Tensor] | list[str]]:
    """Arguments of ``bertviz.model_view(**…)`` and ``bertviz.head_view(**…)`` for an encoder-decoder model.

    For each attention type, a list over layers of (1, H, T, S), and the tokens. bertviz shows one set of
    decoder tokens, those that the decoder read, and requires equal numbers of encoder and decoder layers.
    """
    import torch  # imported here because reading maps does not need it

    named = {
        "encoder_self": "encoder_attention",
        "decoder_self": "decoder_attention",
        "decoder_context": "cross_attention",
    }
    attention = {
        named[name]: [torch.from_numpy(layer)[None] for layer in weights]
        for name, weights in sentence.weights.items()
    }
    return {**attention, "encoder_tokens": sentence.source, "decoder_tokens": sentence.target_input}
