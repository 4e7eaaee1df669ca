"""Writes attention maps to an NPZ file, one sentence at a time; :mod:`.maps` documents its format."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..io import atomic_write
from .map_checks import check_alphas, check_row_sums, check_rows, check_shapes
from .maps import TOKENS, SentenceMaps


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
        for name, weights in sentence.weights.items():
            self._member(name, np.asarray(weights, dtype=np.float32))
        for name in TOKENS:
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
    deflated = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}  # enough for exact zeros
    with atomic_write(path) as beside, zipfile.ZipFile(beside, "w", **deflated) as archive:
        for name, value in (("corpus", corpus), ("subset", subset)):
            if value is not None:
                _write_member(archive, name, np.array(value, dtype=np.str_))
        for name, array in arrays.items():
            _write_member(archive, f"alpha/{name}", array)
        for name, kind in row_sums.items():
            _write_member(archive, f"row_sums/{name}", np.array(kind, dtype=np.str_))
        yield MapsWriter(archive, row_sums, arrays)
