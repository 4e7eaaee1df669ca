"""Reads the weights of a folder as Hugging Face lays it out: one file, or shards that an index names."""

from __future__ import annotations

from pathlib import Path
from zipfile import is_zipfile as is_archive

import torch
from msgspec import Struct
from torch import Tensor

from ..errors import UserError, one_line
from ..io import name_fault, shown, unchanged
from ..schema import read_object

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MAX_HEADER = 16 << 20
"""Bytes of the names and shapes of a safetensors file, which are read at once; a BERT's have 0.1 MB."""


class _Index(Struct):
    weight_map: dict[str, str]


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a model by name, in any floating-point type.

    Raises:
        UserError: a file is missing, damaged, or lies outside the folder; a weight is missing, is not of
            floating-point numbers, or holds NaN or ∞. The message names the file and the weight.
    """
    whole = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if whole is not None:
        return _read(whole)
    index = next((path for name in WEIGHTS if (path := folder / f"{name}.index.json").is_file()), None)
    if index is None:
        raise UserError(
            f"{folder} has neither {' nor '.join(WEIGHTS)}, nor an index of one; download it again"
        )
    places = read_object(index, "an index of weights", _Index, "download it again")["weight_map"]
    for name, shard in places.items():
        fault = name_fault(shard, longest=255)
        if fault is not None or Path(shard).suffix not in (".safetensors", ".bin"):
            reason = fault or "is not a file of weights"
            raise UserError(
                f"{index}: weight_map.{name[:80]} is {shown(shard)}, which {reason}; download it again"
            )
        if not (folder / shard).is_file():
            raise UserError(
                f"{index} names {shown(shard)} for {name[:80]}, but there is no {folder / shard}; download it"
            )
    shards = {shard: _read(folder / shard) for shard in dict.fromkeys(places.values())}
    for name, shard in places.items():
        if name not in shards[shard]:
            raise UserError(f"{folder / shard} lacks {name[:80]}, which {index} names; download it again")
    return {name: shards[shard][name] for name, shard in places.items()}


def _read(path: Path) -> dict[str, Tensor]:
    with unchanged(path):
        try:
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                _require_short_header(path)
                weights = load_file(path)
            else:
                is_archive(path)  # refuses one that would unpack to more than its size
                weights = torch.load(path, map_location="cpu", weights_only=True)
        except UserError:
            raise
        except ImportError:
            raise UserError(f"{path} requires: pip install safetensors") from None
        except Exception as error:  # a corrupt file can raise any exception
            raise UserError(
                f"{path} cannot be read as weights: {one_line(error)[:200]}; download it again"
            ) from None
        if not isinstance(weights, dict) or not all(isinstance(each, Tensor) for each in weights.values()):
            raise UserError(f"{path} does not hold a model's weights")
        # Copied, because safetensors maps the file into memory.
        return {str(name): value.clone() for name, value in weights.items()}


def _require_short_header(path: Path) -> None:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if MAX_HEADER < length <= path.stat().st_size:
        raise UserError(f"{path} has a header of {length:,} bytes; at most {MAX_HEADER:,} are read")


def check_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    """Raise UserError over a weight that is not of finite floating-point numbers."""
    for name, value in weights.items():
        if not value.is_floating_point() or value.layout != torch.strided or value.device.type == "meta":
            raise UserError(f"the weights of {folder} for {name} are {value.dtype}; floats are needed")
        if not torch.isfinite(value.float()).all():
            raise UserError(f"the weights of {folder} for {name} hold NaN or ∞; download them again")
