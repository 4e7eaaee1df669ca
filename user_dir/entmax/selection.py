"""Which implementation of α-entmax computes on a device."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Optional

from torch import Tensor

from ..cpp.build import asked_backend
from . import cpu, reference
from .self_check import entmax_check


def implementation_for(scores: Tensor) -> ModuleType:
    """The module that computes α-entmax of these scores: ``cpu``, ``triton`` or ``reference``.

    Raises:
        ValueError: ENTMAX_BACKEND has an unknown value, or names an implementation that is not available.
    """
    found = _on_device(scores.device.type)
    if found not in (cpu, reference) and not _trusted(scores):
        return reference
    return found


def has_native(device: str) -> bool:
    """Whether compiled code computes α-entmax on a device type, ``cpu`` or ``cuda``.

    Raises:
        ValueError: the environment variable ENTMAX_BACKEND has an unknown value, or is ``native`` where no
            native implementation is available.
    """
    return _on_device(device) is not reference


def _on_device(device: str) -> ModuleType:
    asked = asked_backend()
    native = None if asked == "reference" else _native(device)
    if native is None and asked == "native":
        raise ValueError(f"ENTMAX_BACKEND=native: no native α-entmax is available for {device}; unset it")
    return native or reference


def _trusted(scores: Tensor) -> bool:
    """Whether the GPU kernel is requested by name, or agrees with the reference (``self_check``).

    Also true while a CUDA graph is captured before the check was made, because the reference synchronises
    with the device and cannot be captured.
    """
    if asked_backend() == "native":
        return True
    return entmax_check.passes(scores.device, scores.dtype) is not False


@functools.cache
def _native(device: str) -> Optional[ModuleType]:
    if device == "cpu" and cpu.kernels.available():
        return cpu
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        return importlib.import_module(".triton", __package__)
    return None
