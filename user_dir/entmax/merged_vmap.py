"""torch.vmap of operators whose results are independent along a dimension: one call, with a longer one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Optional

import torch
from torch import Tensor


def merged_vmap(merged: Collection[int], seed: Optional[int] = None) -> Callable:
    """The ``vmap`` of an operator whose results are independent along the first dimension of some arguments.

    The batch becomes part of this dimension. If another argument has it too, the operator runs once for each
    of its entries; so it does if all entries have one seed, since numbers differ along the dimension.

    Args:
        merged: the positions of these arguments. All results must have this first dimension, too.
        seed: the position of the seed of random numbers, a tensor or None.
    """

    def vmap(operator: Callable, info: Any, in_dims: tuple, *given: Any) -> tuple:
        size, dims = info.batch_size, list(in_dims)
        arguments = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(given, dims)]
        apart = any(dim is not None and place not in (*merged, seed) for place, dim in enumerate(dims))
        if seed is not None and arguments[seed] is not None:
            apart = apart or dims[seed] is None
        if apart:
            entries = ([x if dim is None else x[i] for x, dim in zip(arguments, dims)] for i in range(size))
            results = [torch.stack(each) for each in zip(*(operator(*entry) for entry in entries))]
            return tuple(results), (0,) * len(results)
        for place in merged:
            if arguments[place] is not None:
                arguments[place] = _with_batch(arguments[place], dims[place], size).flatten(0, 1)
        if seed is not None and arguments[seed] is not None:
            arguments[seed] = arguments[seed][0]
        results = [x.unflatten(0, (size, x.size(0) // size)) for x in operator(*arguments)]
        return tuple(results), (0,) * len(results)

    return vmap


def _with_batch(tensor: Tensor, dim: Optional[int], size: int) -> Tensor:
    return tensor if dim is not None else tensor.expand(size, *tensor.shape)
