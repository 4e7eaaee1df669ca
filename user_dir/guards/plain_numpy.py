"""Rebuilds the numpy values in fairseq's checkpoints without numpy's unpickling.

``--eval-bleu`` stores numpy scores and counts in checkpoints. numpy's unpickling trusts the file: the state
of a dtype can set flags that make numpy interpret bytes as pointers. Here a dtype is restricted to a number
type and its byte order; scalars and arrays are built from their bytes.
"""

import numpy as np
import torch


class _Type:
    """A numeric dtype, as built by a pickle: by name, then by the byte order in its state."""

    def __init__(self, name: str, *copied: bool):
        self.dtype = np.dtype(name) if isinstance(name, str) else None
        if self.dtype is None or self.dtype.kind not in "biuf":
            raise ValueError(f"a checkpoint has no numpy type {name!r}")

    def __setstate__(self, state: tuple) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array, as built by a pickle: empty, then by its state."""

    def __setstate__(self, state: tuple) -> None:
        version, shape, kind, by_columns, content = state
        if not isinstance(content, bytes):
            raise ValueError("an array of a checkpoint is not bytes")
        super().__setstate__((version, shape, kind.dtype, by_columns, content))

    def __reduce_ex__(self, protocol: int):
        return np.array(self, subok=False).__reduce_ex__(protocol)  # pickles as a plain numpy array


def _empty(kind: type, *shape) -> _Array:
    return np.empty(0).view(_Array)


def _scalar(kind: _Type, content: bytes) -> np.generic:
    if not isinstance(content, bytes):
        raise ValueError("a number of a checkpoint is not bytes")
    return np.frombuffer(content, kind.dtype, count=1)[0]


def allow_numpy() -> None:
    """Allow numpy's numbers in torch's ``weights_only``, under the names of numpy 1 and 2."""
    rebuild = {"_reconstruct": _empty, "scalar": _scalar}
    named = [
        (function, f"numpy.{core}.multiarray.{name}")
        for name, function in rebuild.items()
        for core in ("core", "_core")
    ]
    torch.serialization.add_safe_globals([(_Type, "numpy.dtype"), (_Array, "numpy.ndarray"), *named])
