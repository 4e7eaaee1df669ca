"""What is known of attention maps: finite weights from 0, rows that sum to 1, one shape for all sentences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .columns import ROW_SUMS
from .head_rows import MAX_ALPHA

TOLERANCE = 1e-4  # of a sum of float32 weights

Shapes = dict[str, tuple[int, int]]
"""By attention type: layers and heads."""


def check_weights(name: str, weights: np.ndarray, queries: int, keys: int) -> None:
    """Raise ValueError unless weights (L, H, T, S) are finite, none is negative, and they fit the tokens."""
    if weights.dtype.kind != "f":
        raise ValueError(f"{name} has weights of type {weights.dtype}, not floating-point numbers")
    if weights.ndim != 4 or weights.shape[2:] != (queries, keys) or not weights.size:
        raise ValueError(
            f"{name} has shape {weights.shape}, not (L, H, {queries}, {keys}) as its tokens have"
        )
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        layer, head, query, key = (int(each[0]) for each in wrong.nonzero())
        raise ValueError(
            f"{name} layer {layer} head {head} has the weight {weights[layer, head, query, key]:g} at query "
            f"{query}, key {key}; weights are finite and not negative"
        )


def check_rows(
    weights: Mapping[str, np.ndarray], row_sums: Mapping[str, str], alphas: Mapping[str, np.ndarray]
) -> None:
    """Raise ValueError unless the weights of every query, (L, H, T, S), sum to what ``row_sums`` says.

    Where it says nothing, they sum to anything if all of ``alphas``, (L, H), are 1, as ReLA and fixed
    patterns were once called, else to one.
    """
    for name, each in weights.items():
        kind = row_sums.get(name, "any" if name in alphas and (alphas[name] == 1).all() else "one")
        sums = each.sum(-1, dtype=np.float64)
        allowed = np.abs(sums - 1) <= TOLERANCE
        if kind == "zero or one":
            allowed |= sums == 0
        if kind != "any" and not allowed.all():
            layer, head, query = (int(index[0]) for index in (~allowed).nonzero())
            raise ValueError(
                f"the weights of {name} layer {layer} head {head}, query {query}, sum to "
                f"{sums[layer, head, query]:g}, not to {kind}"
            )


def check_shapes(found: Shapes, expected: Shapes) -> None:
    """Raise ValueError unless a sentence has the layers and heads that the file has."""
    if found != expected:
        raise ValueError(f"it has layers and heads {listed(found)}, but the file {listed(expected)}")


def check_alphas(alphas: Mapping[str, np.ndarray], shapes: Shapes) -> None:
    """Raise ValueError unless there is one valid α for each head."""
    for name, each in alphas.items():
        if each.dtype.kind != "f" or each.shape != shapes.get(name):
            raise ValueError(
                f"α of {name} is an array of {each.dtype} with shape {each.shape}, but its maps have layers "
                f"and heads {listed(shapes)}"
            )
        wrong = ~((each >= 1) & (each <= MAX_ALPHA))
        if wrong.any():
            layer, head = (int(index[0]) for index in wrong.nonzero())
            raise ValueError(
                f"α of {name} layer {layer} head {head} is {each[layer, head]:g}, not a number from 1 to "
                f"{MAX_ALPHA:g}"
            )


def check_row_sums(row_sums: Mapping[str, str]) -> None:
    """Raise ValueError unless these are words for sums."""
    for name, kind in row_sums.items():
        if kind not in ROW_SUMS:
            raise ValueError(
                f"the rows of {name} sum to {kind[:40]!r}, which is none of {', '.join(ROW_SUMS)}"
            )


def listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Shapes for a message, such as ``encoder_self 6×8``."""
    return ", ".join(f"{name} {layers}×{heads}" for name, (layers, heads) in shapes.items()) or "none"
