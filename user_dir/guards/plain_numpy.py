"""The numpy values in fairseq's checkpoints, rebuilt without handing numpy's own unpickling what a file says.

``--eval-bleu`` leaves scores and counts of numpy in a checkpoint. What numpy unpickles them with trusts the
file: the state of a dtype sets flags by which numpy takes bytes for pointers. Here a dtype is a type of
number and its byte order; a scalar and an array are their bytes.
"""

from __future__ import annotations

import numpy as np
import torch


class _Type:
    """A dtype of numbers, as a pickle builds it: by name, then by the byte order of its state."""

    def __init__(self, name: str, *copied: bool):
        self.dtype = np.dtype(name) if isinstance(name, str) else None
        if self.dtype is None or self.dtype.kind not in "biuf":
            raise ValueError(f"a checkpoint has no numpy type {name!r}")

    def __setstate__(self, state: tuple) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array, as a pickle builds it: empty, then by its state."""

    def __setstate__(self, state: tuple) -> None:
        version, shape, kind, by_columns, content = state
        if not isinstance(content, bytes):
            raise ValueError("an array of a checkpoint is not bytes")
        super().__setstate__((version, shape, kind.dtype, by_columns, content))

    def __reduce_ex__(self, protocol: int):
        return np.array(self, subok=False).__reduce_ex__(protocol)  # saved again, it is numpy's own


def _empty(kind: type, *shape) -> _Array:
    return np.empty(0).view(_Array)


def _scalar(kind: _Type, content: bytes) -> np.generic:
    if not isinstance(content, bytes):
        raise ValueError("a number of a checkpoint is not bytes")
    return np.frombuffer(content, kind.dtype, count=1)[0]


def allow_numpy() -> None:
    """Let torch's ``weights_only`` load numpy's numbers, which numpy 1 and 2 rebuild by different names."""
    rebuild = {"_reconstruct": _empty, "scalar": _scalar}
    named = [
        (function, f"numpy.{core}.multiarray.{name}")
        for name, function in rebuild.items()
        for core in ("core", "_core")
    ]
    torch.serialization.add_safe_globals([(_Type, "numpy.dtype"), (_Array, "numpy.ndarray"), *named])
