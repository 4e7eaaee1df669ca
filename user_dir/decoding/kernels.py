"""The functions of ``cpu_steps.cpp``, for translation on a CPU; without torch."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from ..cpp.build import INTEGER, POINTER, NativeKernels, asked_backend

DTYPES = ("float32", "float64")

_BEST = [INTEGER] * 4 + [POINTER] * 3 + [INTEGER] + [POINTER] * 3
_BEST += [INTEGER, ctypes.c_double, INTEGER] + [POINTER] * 3

kernels = NativeKernels(
    Path(__file__).with_name("cpu_steps.cpp"),
    with_torch=False,
    attend=(None, [POINTER] * 10),
    add_norm=(None, [INTEGER] * 2 + [POINTER] * 4 + [ctypes.c_double, POINTER]),
    best=(None, _BEST),
    packed_bytes=(INTEGER, [INTEGER] * 3),
    pack=(None, [POINTER] * 2 + [INTEGER] * 3 + [POINTER] * 2),
    multiply=(None, [POINTER] * 2 + [INTEGER] * 2 + [POINTER] + [INTEGER] * 2),
    search=(INTEGER, [POINTER] * 4),
    use_threads=(None, [INTEGER]),
)


def unavailable(dtype: object) -> str | None:
    """Why the functions are not available for a dtype of torch or NumPy, or its name; None if they are."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        return f"parameters are {name}, neither float32 nor float64"
    if asked_backend() != "reference" and kernels.available():
        return None
    return "it needs a C++ compiler, and ENTMAX_BACKEND not to be reference"


def use_threads_of_torch() -> None:
    """Have the functions use as many threads as torch, if it is loaded.

    Its number is that of one thread of Python, and OpenMP need not know it: torch may have one of its own.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        kernels["use_threads", "float32"](torch.get_num_threads())
