"""Checkpoints as safetensors files, which hold no code: tensors, and all else as JSON in the metadata.

What JSON does not have is an object with one key: ``{"$tensor": NAME}``, ``{"$tuple": [...]}``,
``{"$namespace": {...}}`` or ``{"$float": "inf"}``. A tensor that occurs several times, as tied parameters do,
is stored once. The same state gives the same bytes.
"""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from .bounded import MAX_CHARACTERS

if TYPE_CHECKING:
    import torch

SUFFIX = ".safetensors"
_KEY = "checkpoint"  # of the metadata
_PART = 8 << 20  # bytes that are read of a map
_SCALARS = (str, bool, int, type(None))


def write_safetensors(state: dict, path: Path) -> None:
    """Write a checkpoint; raises TypeError if it has more than plain data and tensors."""
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(_encoded(state, "", tensors, {}), allow_nan=False, separators=(",", ":"))
    save_file(tensors, path, {_KEY: text})


def read_safetensors(path: Path, arrays: str = "pt") -> Any:
    """The state that was written.

    Args:
        path: the file.
        arrays: ``pt`` for tensors of PyTorch, which may be mapped from the file; ``np`` for NumPy's arrays.

    Raises:
        ValueError: the file is damaged, or none of these.
        TypeError: NumPy has no such numbers.
    """
    try:
        with safe_open(path, arrays) as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None or len(text) > MAX_CHARACTERS:
                raise ValueError("it has no state of a checkpoint")
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names if arrays == "pt"}
        while arrays == "np" and names:  # what is read of a map stays in memory until it is closed
            with safe_open(path, arrays) as file:
                read = 0
                while names and read < _PART:
                    name = names.pop()
                    tensors[name] = file.get_tensor(name)
                    read += tensors[name].nbytes
        return _decoded(json.loads(text), tensors)
    except (SafetensorError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _encoded(value, place: str, tensors: dict[str, torch.Tensor], known: dict[int, str]):
    if hasattr(value, "data_ptr"):
        if id(value) not in known:
            known[id(value)] = place
            tensors[place] = value.contiguous()
        return {"$tensor": known[id(value)]}
    if type(value) in _SCALARS:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, Namespace):
        return {"$namespace": _encoded(vars(value), place, tensors, known)}
    if isinstance(value, (list, tuple)):
        items = [_encoded(each, f"{place}.{number}", tensors, known) for number, each in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if not isinstance(value, Mapping) or any(type(key) is not str or key[:1] == "$" for key in value):
        raise TypeError(f"the checkpoint's {place} is not plain data, but a {type(value).__name__}")
    return {key: _encoded(each, f"{place}.{key}".lstrip("."), tensors, known) for key, each in value.items()}


def _decoded(value, tensors: dict[str, Any]):
    if isinstance(value, list):
        return [_decoded(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value), "") if len(value) == 1 else ""
    inner = value.get(kind)
    if kind == "$tensor" and isinstance(inner, str) and inner in tensors:
        return tensors[inner]
    if kind == "$float" and isinstance(inner, str) and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if kind == "$tuple" and isinstance(inner, list):
        return tuple(_decoded(inner, tensors))
    if kind == "$namespace" and isinstance(inner, dict):
        return Namespace(**_decoded(inner, tensors))
    if any(key[:1] == "$" for key in value):
        raise ValueError(f"{kind or 'its JSON'} is not as it is written")
    return {key: _decoded(each, tensors) for key, each in value.items()}
