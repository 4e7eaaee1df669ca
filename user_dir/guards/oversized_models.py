"""fairseq builds models that do not fit into memory until the kernel kills the process.

All versions of fairseq are affected, including sizes from an untrusted checkpoint's settings. A model that
might be too large is therefore first built on PyTorch's ``meta`` device, where tensors have sizes but no
data. Unnecessary once fairseq checks the sizes itself.
"""

import copy
import logging
import os
import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fairseq import models
from torch import Tensor, nn

from ..errors import UserError
from ..sections import architecture
from .hostile_settings import every_setting
from .installing import around
from .literals import MAX_LITERAL


@around(models, "build_model")
def build_model(build, cfg, task, *args, **kwargs):
    """Refuse a model that does not fit into memory."""
    settings = vars(cfg) if isinstance(cfg, Namespace) else cfg
    sides = (getattr(task, "source_dictionary", None), getattr(task, "target_dictionary", None))
    symbols = max(len(side) for side in (*sides, ()) if side is not None)
    if _might_be_large(settings, symbols, physical_memory() // 2):
        what = f"the model {architecture(cfg)}"
        _require_memory(lambda: build(copy.deepcopy(cfg), task, *args, **kwargs), what)
    return build(cfg, task, *args, **kwargs)


def _require_memory(build, what: str) -> None:
    """Raise UserError if the model built by ``build()`` is larger than this machine's memory."""
    with _without_traces():
        try:
            model = build()
        except UserError:
            raise
        except Exception:  # some models cannot be built on that device; the real build will report errors
            return
    needed, memory = size_in_bytes(model), physical_memory()
    if needed > memory:
        raise UserError(
            f"{what} needs {needed / 2**30:,.0f} GiB for its parameters, and this machine has "
            f"{memory / 2**30:,.0f} GiB of memory; check the sizes in its settings"
        )


def _might_be_large(settings, symbols: int, memory: int) -> bool:
    """Whether a model of these settings and so many symbols could require more than ``memory`` bytes.

    A fast upper bound, because loading PyTorch's ``meta`` device takes seconds.
    """
    sizes = {"layers": 1, "positions": 1, "width": 1}
    for name, value in every_setting(settings):
        kind = "layers" if "layers" in name else "positions" if "positions" in name else "width"
        if kind != "width" or re.search(_WIDTHS, name):
            sizes[kind] = max(sizes[kind], *_whole_numbers(value), 1)
    width = sizes["width"]
    weights = 2 * sizes["layers"] * 16 * width**2  # a layer has 4 square matrices and two 4 times as large
    return 4 * (weights + 3 * symbols * width + 2 * sizes["positions"] * width) > memory


_WIDTHS = r"dim|channels|hidden|width|embed|(?<!batch_)size|vars|groups|rank"


def physical_memory() -> int:
    """This machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _whole_numbers(value) -> list[int]:
    """The integers in a setting, which may be one of fairseq's lists as a string."""
    if isinstance(value, str):
        return [int(digits) for digits in re.findall(r"\d+", value[:MAX_LITERAL])]
    if isinstance(value, (list, tuple)):
        return [number for each in value for number in _whole_numbers(each)]
    return [value] if type(value) is int else []


def size_in_bytes(model: nn.Module) -> int:
    """The memory of a model's parameters, buffers and other tensors, each counted once."""
    tensors: dict[int, Tensor] = {id(each): each for each in (*model.parameters(), *model.buffers())}
    for module in model.modules():  # fairseq stores its sinusoids as plain attributes
        tensors.update({id(value): value for value in vars(module).values() if isinstance(value, Tensor)})
    return sum(each.numel() * each.element_size() for each in tensors.values())


@contextmanager
def _without_traces() -> Iterator[None]:
    """Build on the meta device without log lines or effects on the random number generator."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            yield
    finally:
        logging.disable(disabled)
