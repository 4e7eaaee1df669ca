"""Attention maps: a folder with an NPZ file for each sentence, ``0.npz``, ``1.npz`` …

Its arrays are named like the fields of :class:`SentenceMaps`, but weights and α have an array per attention
type, such as ``encoder_self`` and ``alpha/encoder_self``.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..attention.types import ATTENTION_TYPES
from ..errors import UserError
from ..files import atomic_write

SIDES = {
    "encoder_self": ("source", "source"),
    "decoder_self": ("target_input", "target_input"),
    "decoder_context": ("target_input", "source"),
}
"""The tokens of the queries and of the keys, by attention type."""
Head = tuple[str, int, int]
"""A head: attention type, layer and head, the latter two counted from 0."""
_TOKENS = ("source", "target_input", "target")
_NAMES = ("text", "corpus", "subset")


@dataclass(frozen=True)
class SentenceMaps:
    """The attention of every head on one sentence pair."""

    weights: dict[str, np.ndarray]  # by attention type that the model has, (L, H, T, S) float32, no padding
    alphas: dict[str, np.ndarray]  # by attention type, (L, H)
    source: list[str]  # the S source tokens
    target_input: list[str]  # the T tokens that the decoder read: </s>, then all target tokens but the last
    target: list[str]  # the T tokens that the decoder had to predict
    text: str  # the source sentence before segmentation
    corpus: str = ""
    subset: str = ""

    def keys(self, attention_type: str) -> list[str]:
        """The S key tokens."""
        return getattr(self, SIDES[attention_type][1])

    def head(self, attention_type: str, layer: int, head: int) -> np.ndarray:
        """Weights (T, S) of one head; raises UserError if it does not exist."""
        weights = self.weights.get(attention_type, np.empty((0, 0)))
        layers, heads = weights.shape[:2]
        if layer >= layers or head >= heads:
            raise UserError(f"there is no {attention_type} layer {layer}, head {head}; both count from 0")
        return weights[layer, head]


def read_maps(folder: Path) -> list[SentenceMaps]:
    """Read the maps of all sentences in a folder; raises UserError if there are none, or one is damaged."""
    files = _files(folder)
    if not files:
        raise UserError(f"no attention maps {folder}; heads.py --dump-attention writes them")
    return list(map(read_map, files))


def read_map(path: Path) -> SentenceMaps:
    """Read the maps of a sentence; raises UserError if that is not possible."""
    try:
        with np.load(path) as arrays:
            return SentenceMaps(
                weights={name: arrays[name] for name in ATTENTION_TYPES if name in arrays},
                alphas={name: arrays[f"alpha/{name}"] for name in ATTENTION_TYPES if name in arrays},
                **{name: arrays[name].tolist() for name in (*_TOKENS, *_NAMES)},
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the attention maps {path}: {error}") from None


def _files(folder: Path) -> list[Path]:
    """The files of a folder of maps, in the order of the sentences."""
    return sorted(folder.glob("[0-9]*.npz"), key=lambda path: int(path.stem))


def write_maps(folder: Path, sentences: Sequence[SentenceMaps]) -> None:
    """Write the maps of sentences to a folder, a file for each; other maps in the folder are removed."""
    for path in _files(folder):
        path.unlink()
    for number, sentence in enumerate(sentences):
        arrays = {name: weights.astype(np.float32) for name, weights in sentence.weights.items()}
        arrays |= {f"alpha/{name}": alphas for name, alphas in sentence.alphas.items()}
        for name in (*_TOKENS, *_NAMES):
            arrays[name] = np.array(getattr(sentence, name), np.str_)
        with atomic_write(folder / f"{number}.npz") as file:
            np.savez_compressed(file, **arrays)


def sentence_maps(
    task, sample: dict, row: int, captured: Mapping[str, list], alphas: Mapping[str, list], **about: str
) -> SentenceMaps:
    """The maps, without padding, of the sentence in ``row`` of a batch of fairseq's ``task``.

    ``captured`` is from :func:`~.capture.captured_attention`, ``alphas`` has the heads' α by attention type
    and layer, and ``about`` has the source sentence, ``text``, and the names of ``corpus`` and ``subset``.
    """
    inputs, padding = sample["net_input"], task.source_dictionary.pad()
    sides = {
        "source": (inputs["src_tokens"][row], task.source_dictionary),
        "target_input": (inputs["prev_output_tokens"][row], task.target_dictionary),
        "target": (sample["target"][row], task.target_dictionary),
    }
    real = {name: (tokens != padding).cpu().numpy() for name, (tokens, _) in sides.items()}
    weights = {}
    for kind, layers in captured.items():
        if layers:
            query, key = SIDES[kind]
            stacked = np.stack([layer[row].cpu().numpy() for layer in layers])
            weights[kind] = stacked[:, :, real[query]][..., real[key]]
    symbols = {
        name: [dictionary[token] for token in tokens.tolist() if token != padding]
        for name, (tokens, dictionary) in sides.items()
    }
    return SentenceMaps(weights, {kind: np.array(alphas[kind]) for kind in weights}, **symbols, **about)
