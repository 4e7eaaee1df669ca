"""Attention maps of whole sentences in an NPZ file, read one sentence at a time.

Arrays of sentence i, counted from 0: ``{i}/encoder_self``, ``{i}/decoder_self`` and ``{i}/decoder_context``,
float32 (L, H, T, S) without padding; ``{i}/source``, the source tokens; ``{i}/target_input``, the tokens that
the decoder read, which are its queries (``</s>``, then the target without its last token); ``{i}/target``,
the tokens to predict (the reference, since decoding is teacher-forced); and, if known, ``{i}/text``, the
source before segmentation. Arrays of the file: ``corpus`` and ``subset``, the names of the corpus and split,
``alpha/encoder_self`` etc., the α of each head (L, H), and ``row_sums/encoder_self`` etc., what the weights
of a query sum to: ``one``, ``zero or one`` (fixed patterns) or ``any`` (ReLA).

What is read goes through the checks that :mod:`.maps_writer` makes, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import MAX_STRINGS, Arrays
from ..attention_types import ATTENTION_TYPES
from ..errors import UserError, one_line
from ..io import shown
from .map_checks import check_alphas, check_row_sums, check_rows, check_shapes, check_weights

if TYPE_CHECKING:
    from torch import Tensor

MAX_SENTENCE = 512 << 20
"""Bytes of a sentence's arrays, so that with copies of them less than 1 GiB is in memory."""
MAX_ALPHAS = 1 << 20  # bytes; 24 layers of 16 heads have 3,072
TOKENS = ("source", "target_input", "target")
SIDES = {
    "encoder_self": ("source", "source"),
    "decoder_self": ("target_input", "target_input"),
    "decoder_context": ("target_input", "source"),
}
"""The tokens of the queries and of the keys, by attention type."""
_TYPES = "|".join(ATTENTION_TYPES)
_NAME = re.compile(
    rf"corpus|subset|(?:alpha|row_sums)/(?:{_TYPES})|(?P<number>0|[1-9]\d{{0,8}})/(?:{_TYPES}|{'|'.join(TOKENS)}|text)"
)


@dataclass(frozen=True)
class SentenceMaps:
    """The attention of every head on one sentence pair."""

    weights: dict[str, np.ndarray]  # by attention type that the model has, (L, H, T, S) float32
    source: list[str]  # the S source tokens
    target_input: list[str]  # the T tokens that the decoder read
    target: list[str]  # the T tokens that it had to predict
    text: str | None = None  # the source sentence, if known

    def __post_init__(self):
        """Raise ValueError if tokens and weights do not match, or a weight is negative or not finite."""
        if len(self.target) != len(self.target_input):
            raise ValueError(f"{len(self.target_input)} tokens read, but {len(self.target)} predicted")
        for name, weights in self.weights.items():
            if name not in ATTENTION_TYPES:
                raise ValueError(f"no attention type {name!r}")
            check_weights(name, weights, len(self.queries(name)), len(self.keys(name)))

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """By attention type: layers and heads."""
        return {name: weights.shape[:2] for name, weights in self.weights.items()}

    def queries(self, attention_type: str) -> list[str]:
        """The T query tokens."""
        return getattr(self, SIDES[attention_type][0])

    def keys(self, attention_type: str) -> list[str]:
        """The S key tokens."""
        return getattr(self, SIDES[attention_type][1])

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


class Maps:
    """The sentences of an NPZ file of attention maps, read on access: ``maps[3]``, ``len(maps)``.

    Attributes:
        path: the file.
        corpus: name of the sentences' corpus; None if unknown.
        subset: public name of the split; None if unknown.
        alphas: by attention type, the α of each head (L, H); empty if unknown.
        row_sums: by attention type, what the weights of a query sum to; empty if unknown.
        shapes: by attention type, layers and heads.
    """

    def __init__(self, path: str | Path):
        """Raise UserError if the file does not exist, has no maps, or its α's are not of these maps."""
        self.path = Path(path)
        if not self.path.is_file():
            raise UserError(f"no attention maps {path}; head_stats.py --dump-attention writes them")
        try:
            self._arrays = Arrays(self.path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is not a file of attention maps: {one_line(error)}") from None
        self._names = self._arrays.names
        self._sentences = self._count()
        with self._readable():
            self.corpus, self.subset = self._text("corpus"), self._text("subset")
            sums = {name: self._text(f"row_sums/{name}") for name in ATTENTION_TYPES}
            self.row_sums = {name: kind for name, kind in sums.items() if kind is not None}
            check_row_sums(self.row_sums)
        self.shapes = self._read(0).shapes
        with self._readable():
            self.alphas = {
                name: self._arrays.read(f"alpha/{name}", MAX_ALPHAS)
                for name in ATTENTION_TYPES
                if f"alpha/{name}" in self._names
            }
            check_alphas(self.alphas, self.shapes)

    def __len__(self) -> int:
        return self._sentences

    def __iter__(self) -> Iterator[SentenceMaps]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> SentenceMaps:
        """Read sentence ``number``; raises UserError if it is out of range, corrupt, or unlike the first."""
        if not 0 <= number < len(self):
            raise UserError(f"{self.path} has no sentence {number}: it has sentences 0 to {len(self) - 1}")
        found = self._read(number)
        with self._readable(f" at sentence {number}"):
            check_shapes(found.shapes, self.shapes)
            check_rows(found.weights, self.row_sums, self.alphas)
        return found

    def _read(self, number: int) -> SentenceMaps:
        names = {name: f"{number}/{name}" for name in (*ATTENTION_TYPES, *TOKENS, "text")}
        there = {name: array for name, array in names.items() if array in self._names}
        size = sum(map(self._arrays.size, there.values()))
        if size > MAX_SENTENCE:
            raise UserError(
                f"{self.path}: sentence {number} has {size:,} bytes; at most {MAX_SENTENCE:,} are read"
            )
        for name in TOKENS:
            if name not in there:
                raise UserError(f"{self.path} has a sentence {number}, but no array {names[name]}")
        with self._readable(f" at sentence {number}"):
            weights = {name: self._arrays.read(there[name]) for name in ATTENTION_TYPES if name in there}
            tokens = {name: _tokens(self._arrays.read(names[name], MAX_STRINGS)) for name in TOKENS}
            if not weights:
                raise ValueError("it has no weights")
            return SentenceMaps(weights, **tokens, text=self.text(number))

    def text(self, number: int) -> str | None:
        """The source of a sentence as text; None if it is not in the file."""
        return self._text(f"{number}/text")

    def _count(self) -> int:
        """The number of sentences; raises UserError over an array that does not belong here."""
        found = {name: _NAME.fullmatch(name) for name in self._names}
        numbers = {int(match["number"]) for match in found.values() if match and match["number"]}
        if not numbers or numbers != set(range(len(numbers))):
            raise UserError(f"{self.path} has no attention maps: no arrays 0/source, 0/encoder_self etc.")
        wrong = next((name for name, match in found.items() if match is None), None)
        if wrong is not None:
            raise UserError(
                f"{self.path} has an array {shown(wrong)}, which attention maps do not have; write them anew "
                "with head_stats.py --dump-attention"
            )
        return len(numbers)

    def _text(self, name: str) -> str | None:
        """A string of the file, or None; raises ValueError if it is something else."""
        if name not in self._names:
            return None
        array = self._arrays.read(name, MAX_STRINGS)
        if array.dtype.kind != "U" or array.ndim:
            raise ValueError(f"its {name} is not a string")
        return str(array)

    @contextmanager
    def _readable(self, place: str = "") -> Iterator[None]:
        """Raise a UserError that names the file over what is wrong in it."""
        try:
            yield
        except Exception as error:  # a corrupt file can raise any exception
            raise UserError(
                f"{self.path} is corrupt{place}: {one_line(error)}; write it again with head_stats.py "
                "--dump-attention"
            ) from None


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

    names = dict(zip(ATTENTION_TYPES, ("encoder_attention", "decoder_attention", "cross_attention")))
    attention = {
        names[kind]: [torch.from_numpy(layer)[None] for layer in weights]
        for kind, weights in sentence.weights.items()
    }
    return {**attention, "encoder_tokens": sentence.source, "decoder_tokens": sentence.target_input}
