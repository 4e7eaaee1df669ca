"""Matrices of parameters in 8 bits: a quarter of the size of float32.

A matrix is written as ``q · s``: integers q from −127 to 127 and, for each row, a float32 s (symmetric
rounding by rows; Jacob et al. 2018, https://arxiv.org/abs/1712.05877, section 2). s has 16 significant bits,
so that q · s is exact in float32, and rounding what is rounded already changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cpp.build import addresses
from .errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_KEY = "eight_bits"  # of a packed checkpoint: the name of each matrix → q and s
_LARGEST, _BITS = 127, 16


def rounded(model: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of a model in float32, with every matrix rounded to 8 bits a number."""
    return {name: _product(*_quantised(each)) if _is_matrix(each) else each for name, each in model.items()}


def is_rounded(model: dict[str, Tensor]) -> bool:
    """Whether packing loses nothing."""
    matrices = [each for each in model.values() if _is_matrix(each)]
    return bool(matrices) and all(
        str(each.dtype) == "torch.float32" and _product(*_quantised(each)).equal(each) for each in matrices
    )


def packed(state: dict) -> dict:
    """A checkpoint with its matrices in 8 bits; those that are the same tensor are stored once.

    Args:
        state: from :func:`.checkpoints.for_inference`, :func:`rounded`; it is not changed.
    """
    known: dict[int, tuple[Tensor, Tensor]] = {}
    matrices, others = {}, {}
    for name, each in state["model"].items():
        if _is_matrix(each):
            matrices[name] = known.setdefault(id(each), _quantised(each))
        else:
            others[name] = each
    return {**state, "model": others, _KEY: matrices}


def restored(state: dict, path: str | Path) -> dict:
    """The checkpoint that one in 8 bits stands for; any other as it is.

    Args:
        state: as it was read, with tensors or NumPy's arrays, possibly without its model; it is used up.
        path: for error messages.

    Raises:
        UserError: what it has for matrices in 8 bits are none.
    """
    if _KEY not in state:
        return state
    matrices = state.pop(_KEY)
    if not isinstance(matrices, dict) or not all(map(_is_packed, matrices.values())):
        raise UserError(f"{path} has no matrices in 8 bits")
    known: dict[tuple, Any] = {}
    for name in list(matrices) if "model" in state else ():
        integers, scales = matrices.pop(name)
        key = *addresses(integers, scales), integers.shape
        if key not in known:
            known[key] = _product(integers, scales)
        state["model"][name] = known[key]
    return state


def _is_matrix(parameter: Tensor) -> bool:
    return parameter.dim() == 2 and parameter.is_floating_point()


def _is_packed(value) -> bool:
    if not isinstance(value, (list, tuple)) or not all(hasattr(each, "dtype") for each in value):
        return False
    return [(str(each.dtype).removeprefix("torch."), each.ndim, _is_contiguous(each)) for each in value] == [
        ("int8", 2, True),
        ("float32", 2, True),
    ] and value[1].shape == (len(value[0]), 1)


def _is_contiguous(array) -> bool:
    return array.is_contiguous() if hasattr(array, "is_contiguous") else array.flags.c_contiguous


def _quantised(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The q (rows, columns) in int8 and the s (rows, 1) in float32."""
    import torch

    matrix = matrix.float()
    fraction, exponent = torch.frexp(matrix.abs().amax(1, keepdim=True) / _LARGEST)
    scales = torch.ldexp((fraction * 2**_BITS).ceil(), exponent - _BITS)
    return (matrix / scales.where(scales > 0, 1)).round().to(torch.int8), scales


def _product(integers, scales):
    return integers * scales  # float32 with either library
