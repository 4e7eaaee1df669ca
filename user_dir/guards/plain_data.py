"""Rebuilds a checkpoint's contents from exact plain types, so that what is checked is what is used.

``torch.load(weights_only=True)`` runs no code, but its result need not be plain data: an ``OrderedDict`` or a
tensor can carry extra attributes, and fairseq reads settings as attributes. Here everything is rebuilt from
dicts, lists, tuples, strings, numbers, None, ``Namespace`` (settings only) and dense tensors and arrays
(elsewhere). Anything else is refused.

Tensors that are mapped into memory are copied. Otherwise a training that goes on with a checkpoint's moments
would change with the file, and end in a bus error if the file is cut short.
"""

import ctypes
import mmap
import os
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch

from ..bounded import MAX_CHARACTERS, MAX_CLAIMED
from ..errors import UserError

MAX_DEPTH = 50  # levels of nesting; fairseq's own settings have 5
MAX_SETTINGS, MAX_VALUES = 100_000, 5_000_000  # maximum number of values in the settings, and in total
MAX_KEY, MAX_PLACE = 1_000, 100  # characters of a key, and of a place in an error message
MAX_INTEGER = 2**63  # limit of integers

_SCALARS = (str, bool, int, float, type(None))
_REAL = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_REAL |= {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def plain_state(
    state: dict, path: str, file_size: int, *, mapped: bool = False, leave_out: Collection[str] = ()
) -> dict:
    """Rebuild the result of ``torch.load(weights_only=True)`` for the checkpoint at ``path``.

    Args:
        state: the result.
        path: for error messages.
        file_size: in bytes; tensors much larger than that are refused.
        mapped: the tensors are in a map of the file, and are to be copied from it.
        leave_out: parts that are checked but not returned.

    Raises:
        UserError: a value is not plain data, is cyclic or nested more than 50 levels deep, or there are more
            values than in any real checkpoint.
    """
    builder, plain = _Builder(path, file_size), {}
    builder.maps = _maps_of(path) if mapped else []
    for name, value in state.items():
        builder.settings = name in ("cfg", "args")
        builder.copies = mapped and name not in leave_out
        built = builder.build(value, builder.key(name))
        if name not in leave_out:
            plain[name] = built
    return plain


class _Builder:
    def __init__(self, path: str, file_size: int):
        self.path = path
        self.settings = False  # whether the value is in the settings, where there are no tensors
        self.copies = False  # whether tensors are copied
        self.place: list = []  # the keys, from the outermost, of the value that is built; None in a list
        self.bytes_left = MAX_CLAIMED * file_size
        self.maps: list[range] = []  # of the file
        self.copied: dict[tuple[int, int], torch.UntypedStorage] = {}
        self.to_copy = file_size  # bytes; the storages of a file that PyTorch wrote do not overlap
        self.values_left = {True: MAX_SETTINGS, False: MAX_VALUES}
        self.characters_left = MAX_CHARACTERS

    def refuse(self, reason: str) -> UserError:
        place = ".".join(str(key) for key in self.place if key is not None) or "state"
        place = place if len(place) <= MAX_PLACE else place[:MAX_PLACE] + "…"
        return UserError(f"{self.path} is refused: its {place} {reason}")

    def build(self, value, key=None):
        """Rebuild the value under a checked key, or an item of a list."""
        self.place.append(key)
        self.values_left[self.settings] -= 1
        if len(self.place) > MAX_DEPTH + 1:
            raise self.refuse(f"is nested more than {MAX_DEPTH} levels deep, or within itself")
        if self.values_left[self.settings] < 0:
            raise self.refuse("has more values than any real checkpoint")
        built = self._built(value)
        self.place.pop()
        return built

    def _built(self, value):
        kind = type(value)
        if kind in _SCALARS:
            return self._scalar(value, text=self.settings)
        if kind in (list, tuple, torch.Size):
            items = map(self.build, value)
            return list(items) if kind is list else tuple(items)
        if kind is dict or kind is OrderedDict:
            # PyTorch's own state_dict() has a `_metadata`, which fairseq does not save.
            if kind is OrderedDict and set(vars(value)) - (set() if self.settings else {"_metadata"}):
                raise self.refuse("has attributes beside its items, which is not plain data")
            return self._items(value)
        if kind is Namespace and self.settings:
            if any(str(key).startswith("__") for key in vars(value)):
                raise self.refuse("has an invalid name of a setting")
            return Namespace(**self._items(vars(value)))
        if not self.settings and kind in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value)
        if not self.settings and isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
            return np.array(value, subok=False)[()]
        raise self.refuse(f"is a {kind.__name__}, which is not plain data")

    def _items(self, items: dict) -> dict:
        built = {}
        for key, value in items.items():
            if self.settings and type(key) is not str:
                raise self.refuse(f"has a name that is a {type(key).__name__}")
            built[key] = self.build(value, self.key(key))
        return built

    def key(self, key):
        """Check a key of a dict: a string, a number or a tuple of these."""
        scalars = key if type(key) is tuple else (key,)
        if len(scalars) > MAX_KEY:
            raise self.refuse(f"has a key of {len(scalars)} values; the limit is {MAX_KEY}")
        for each in scalars:
            if type(each) not in _SCALARS:
                raise self.refuse(f"has a key that is a {type(key).__name__}, which is not plain data")
            if type(each) is str and len(each) > MAX_KEY:
                raise self.refuse(f"has a key of {len(each)} characters; the limit is {MAX_KEY}")
            self._scalar(each, text=True)  # a file can hold a key once and use it often
        return key

    def _scalar(self, value, text: bool):
        if type(value) is int and abs(value) >= MAX_INTEGER:
            raise self.refuse("is a number of more than 64 bits")
        if type(value) is str and text:
            self.characters_left -= len(value)
            if self.characters_left < 0:
                raise self.refuse("has more text than any real checkpoint")
        return value

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        dense = value.layout == torch.strided and value.device.type == "cpu" and not value.is_nested
        if not dense or value.is_quantized or value.dtype not in _REAL:
            kind = f"{value.dtype} tensor ({value.layout}, {value.device})".replace("torch.", "")
            raise self.refuse(f"is a {kind}; only dense tensors of real numbers are read")
        claimed = value.numel() * value.element_size()
        self.bytes_left -= claimed
        if claimed > value.untyped_storage().nbytes() or self.bytes_left < 0:
            shape = "×".join(map(str, value.shape))
            raise self.refuse(f"claims {shape} numbers, more than the file contains")
        value = value.detach()  # without extra attributes
        return self._copy(value) if self.copies else value

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor in memory of its own; tensors that share memory share its copy."""
        storage = value.untyped_storage()
        place = storage.data_ptr(), storage.nbytes()
        if place not in self.copied:
            self.to_copy -= storage.nbytes()
            if self.to_copy < 0:
                raise self.refuse("and others claim more numbers than the file contains")
            self.copied[place] = storage.clone()
            self._let_go(*place)
        copy = torch.empty(0, dtype=value.dtype)
        return copy.set_(self.copied[place], value.storage_offset(), value.shape, value.stride())

    def _let_go(self, first: int, size: int) -> None:
        """Free memory that holds what was read of the file's map; reading it again reads the file again."""
        first, end = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, first + size  # whole pages
        length = end // mmap.PAGESIZE * mmap.PAGESIZE - first
        if length > 0 and any(first in each and first + length <= each.stop for each in self.maps):
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), mmap.MADV_DONTNEED)


def _maps_of(path: str) -> list[range]:
    """The addresses of this process's maps of a file; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    ours = [line.split()[0] for line in lines if line.endswith(f" {os.path.realpath(path)}")]
    return [range(*(int(end, 16) for end in each.split("-"))) for each in ours]
