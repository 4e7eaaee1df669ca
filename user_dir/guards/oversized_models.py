"""A model that does not fit into memory is built all the same, until the kernel kills the process.

So it is in all versions of fairseq, also where the sizes are settings of a checkpoint that somebody else
made. A model that might be too large is therefore first built on PyTorch's ``meta`` device, where tensors
have sizes and no numbers. Unnecessary once fairseq looks at the sizes itself.
"""

from __future__ import annotations

import copy
import functools
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
from .hostile_checkpoints import LONGEST


def require_memory(build, what: str) -> None:
    """Raise a UserError where the model that ``build()`` makes is larger than this machine's memory."""
    with _without_traces():
        try:
            model = build()
        except UserError:
            raise
        except Exception:  # not every model of fairseq's can be built on that device; the build proper tells
            return
    needed, memory = size_in_bytes(model), physical_memory()
    if needed > memory:
        raise UserError(
            f"{what} needs {needed / 2**30:,.0f} GiB for its parameters, and this machine has "
            f"{memory / 2**30:,.0f} GiB of memory; look at the sizes among its settings"
        )


def physical_memory() -> int:
    """This machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def might_be_large(settings, symbols: int, memory: int) -> bool:
    """Whether the sizes among a model's settings could, taken together, ask for more than ``memory`` bytes.

    An upper bound in a moment: loading what PyTorch needs for its ``meta`` device takes seconds.

    Args:
        settings: of the model, by name.
        symbols: in its larger dictionary.
        memory: in bytes.
    """
    sizes = {"layers": 1, "positions": 1, "width": 1}
    for name, value in _flat(settings):
        kind = "layers" if "layers" in name else "positions" if "positions" in name else "width"
        if kind != "width" or re.search(_WIDTHS, name):
            sizes[kind] = max(sizes[kind], *_whole_numbers(value), 1)
    width = sizes["width"]
    weights = 2 * sizes["layers"] * 16 * width**2  # 16: a layer has 4 square matrices and two 4 times as long
    return 4 * (weights + 3 * symbols * width + 2 * sizes["positions"] * width) > memory


_WIDTHS = r"dim|channels|hidden|width|embed|(?<!batch_)size|vars|groups|rank"


def _flat(settings) -> Iterator[tuple[str, object]]:
    """Settings by name, those of inner groups too."""
    for name, value in settings.items():
        if isinstance(value, Namespace):
            value = vars(value)
        if hasattr(value, "items"):
            yield from _flat(value)
        else:
            yield str(name), value


def _whole_numbers(value) -> list[int]:
    """The whole numbers in a setting, which may be a list of fairseq's as a text."""
    if isinstance(value, str):
        return [int(digits) for digits in re.findall(r"\d+", value[:LONGEST])]
    if isinstance(value, (list, tuple)):
        return [number for each in value for number in _whole_numbers(each)]
    return [value] if type(value) is int else []


def size_in_bytes(model: nn.Module) -> int:
    """The memory that a model's parameters, buffers and other tensors take, each counted once."""
    tensors: dict[int, Tensor] = {id(each): each for each in (*model.parameters(), *model.buffers())}
    for module in model.modules():  # fairseq keeps its sinusoids as plain attributes
        tensors.update({id(value): value for value in vars(module).values() if isinstance(value, Tensor)})
    return sum(each.numel() * each.element_size() for each in tensors.values())


@contextmanager
def _without_traces() -> Iterator[None]:
    """Build on the meta device, without log lines, and leave the random numbers as they were."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            yield
    finally:
        logging.disable(disabled)


def install() -> None:
    """Have fairseq build no model that does not fit."""
    build = models.build_model

    @functools.wraps(build)
    def checked(cfg, task, *args, **kwargs):
        settings = vars(cfg) if isinstance(cfg, Namespace) else cfg
        sides = (getattr(task, "source_dictionary", None), getattr(task, "target_dictionary", None))
        symbols = max(len(side) for side in (*sides, ()) if side is not None)
        if might_be_large(settings, symbols, physical_memory() // 2):
            name = settings.get("_name") or settings.get("arch")
            require_memory(lambda: build(copy.deepcopy(cfg), task, *args, **kwargs), f"the model {name}")
        return build(cfg, task, *args, **kwargs)

    models.build_model = checked
