"""Writes attention maps to an NPZ file, one sentence at a time; :mod:`.maps` documents its format."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..io import atomic_write
from .map_checks import check_alphas, check_row_sums, check_rows, check_shapes
from .maps import SIDES, TOKENS, SentenceMaps


class MapsWriter:
    """Appends sentences to an NPZ file; created by :func:`maps_writer`."""

    def __init__(
        self, archive: zipfile.ZipFile, row_sums: Mapping[str, str], alphas: Mapping[str, np.ndarray]
    ):
        self._archive, self._row_sums, self._alphas = archive, row_sums, alphas
        self._shapes: dict[str, tuple[int, int]] = {}
        self.sentences = 0

    def write(self, sentence: SentenceMaps) -> None:
        """Append one sentence; raises ValueError over weights that :class:`Maps` would refuse."""
        if not self.sentences:
            self._shapes = sentence.shapes
            check_alphas(self._alphas, self._shapes)
        try:
            check_shapes(sentence.shapes, self._shapes)
            check_rows(sentence.weights, self._row_sums, self._alphas)
        except ValueError as error:
            raise ValueError(f"sentence {self.sentences}: {error}") from None
        members = {
            name: np.ascontiguousarray(weights, np.float32) for name, weights in sentence.weights.items()
        }
        members |= {name: np.array(getattr(sentence, name), np.str_) for name in TOKENS}
        if sentence.text is not None:
            members["text"] = np.array(sentence.text, np.str_)
        for name, array in members.items():
            _write_member(self._archive, f"{self.sentences}/{name}", array)
        self.sentences += 1

    def write_batch(self, task, texts: Sequence[str], sentences: int, sample: dict, captured: dict) -> None:
        """Append those sentences of a batch that are among the first of a split.

        Args:
            task: fairseq's task, for its dictionaries.
            texts: every source sentence of the split as text.
            sentences: how many, from the first, are written.
            sample: a batch; batches come in corpus order.
            captured: its attention, from :func:`~.capture.captured_attention`.
        """
        for number, row in sorted((number, row) for row, number in enumerate(sample["id"].tolist())):
            if number >= sentences:
                break
            self.write(sentence_maps(task, sample, row, captured, texts[number]))


def sentence_maps(task, sample: dict, row: int, captured: dict, text: str) -> SentenceMaps:
    """The maps of a row of a batch, without padding; arguments as for :meth:`MapsWriter.write_batch`."""
    inputs, padding = sample["net_input"], task.source_dictionary.pad()
    sides = {
        "source": (inputs["src_tokens"], task.source_dictionary),
        "target_input": (inputs["prev_output_tokens"], task.target_dictionary),
        "target": (sample["target"], task.target_dictionary),
    }
    real = {name: (tokens[row] != padding).cpu().numpy() for name, (tokens, _) in sides.items()}
    weights = {
        kind: np.stack([layer[row].cpu().numpy() for layer in layers])
        for kind, layers in captured.items()
        if layers
    }
    for kind, each in weights.items():
        query, key = SIDES[kind]
        weights[kind] = each[:, :, real[query]][..., real[key]]
    symbols = {
        name: [dictionary[token] for token in tokens[row].tolist() if token != padding]
        for name, (tokens, dictionary) in sides.items()
    }
    return SentenceMaps(weights=weights, text=text, **symbols)


def _write_member(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


@contextmanager
def maps_writer(
    path: str | Path,
    *,
    corpus: str | None = None,
    subset: str | None = None,
    alphas: Mapping[str, list[list[float]]] | None = None,
    row_sums: Mapping[str, str] | None = None,
) -> Iterator[MapsWriter]:
    """Open an NPZ file of attention maps to write sentence by sentence.

    Only one sentence is in memory at a time, besides ZIP's table of contents of about a hundred bytes per
    array. The file is replaced only if the body succeeds.

    Args:
        path: the file.
        corpus: name of the sentences' corpus; None if unknown.
        subset: public name of the split.
        alphas: by attention type, the α of each layer and head.
        row_sums: by attention type, what the weights of a query sum to, one of :data:`~.columns.ROW_SUMS`.

    Raises:
        ValueError: an α or one of ``row_sums`` cannot be.
    """
    arrays = {name: np.array(layers, dtype=np.float64) for name, layers in (alphas or {}).items()}
    row_sums = dict(row_sums or {})
    check_row_sums(row_sums)
    named = {"corpus": corpus, "subset": subset}
    members = {name: np.array(value, np.str_) for name, value in named.items() if value is not None}
    members |= {f"alpha/{name}": array for name, array in arrays.items()}
    members |= {f"row_sums/{name}": np.array(kind, np.str_) for name, kind in row_sums.items()}
    deflated = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}  # enough for exact zeros
    with atomic_write(path) as beside, zipfile.ZipFile(beside, "w", **deflated) as archive:
        for name, array in members.items():
            _write_member(archive, name, array)
        yield MapsWriter(archive, row_sums, arrays)
