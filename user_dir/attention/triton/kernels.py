"""Attention by Triton kernels for the GPU: the backward pass computes weights again, from one λ per row.

Kernels are compiled per bucket of lengths (the next power of two), not per length, batch size or α. Short
rows, up to ``RESIDENT`` keys, are solved on chip; longer ones loop over tiles of keys and skip tiles without
weights. Results are deterministic.

The design follows FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135) and its extension to
α-entmax, AdaSplash (Gonçalves et al. 2025, https://arxiv.org/abs/2502.12082). Here α is a tensor with a
gradient, and one λ is saved per row instead of a second output.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from triton import cdiv

from ..fused import Saved
from ..inputs import KernelInputs
from . import backward, forward, launching, tiles
from .launching import bucket_of, head_dim_constants, mask_of, precision, schedule, strides_of

# ------------------------------------------------ sizes, measured on an H200 at head dimension 64 in bfloat16
# Dictionaries with the keys 2 and 4 are by bytes per number: a float32 product takes three TF32 products.
RESIDENT = 256  # keys of the longest row that is a single tile
STEP_KEYS = 8192  # keys of the longest row of a decoding step, whose scores are in registers
# Most queries and keys for which one kernel computes all gradients of a head: its keys and values must fit
# into shared memory.
ONE_KERNEL = {2: 128, 4: 32}
QUERIES = {16: 16, 32: 16, 64: 64, 128: 64, 256: 32}  # per tile, by bucket of keys
# The same if one kernel computes all gradients: sums for keys and values occupy the registers.
BACKWARD_QUERIES = {16: 16, 32: 32, 64: 64, 128: 16}
# Most keys per tile in the gradient of queries: registers must hold two sums and four tiles of scores.
BACKWARD_KEYS = 32
TILE = {2: 64, 4: 32}  # queries and keys per tile of longer rows, and most queries per tile of shorter ones
# Limits of registers per lane by kernel, so that more programs fit on a multiprocessor; float32 and head
# dimensions above 64 have no limit.
MAX_REGISTERS = {"forward_short": 128, "forward_long": 128, "backward_queries": 168, "backward_keys": 168}
MAX_HEAD_DIM = 128  # for which shared memory suffices on sm_80, sm_90 and later; on sm_86 and sm_89, up to 64
STEP_SCORES = 4  # numbers in registers per score of a long decoding step, for the solver
STAGES = 2  # software pipelining of loops over tiles; float32 tiles do not leave room for two stages


def is_step(query: Tensor, key: Tensor, dropout: float) -> bool:
    """Whether this is a decoding step if no gradient is needed: one query, not too many keys, no dropout."""
    return query.size(2) == 1 and key.size(2) <= STEP_KEYS and dropout == 0.0


class Call:
    """Sizes and constants that all kernels for tensors of the same sizes share, forward and backward."""

    def __init__(self, shape: torch.Size, keys: int, dtype: torch.dtype, causal: bool, dropout: float):
        self.batch, self.heads, self.queries, head_dim = shape
        self.keys = keys
        self.size = torch.finfo(dtype).bits // 8
        self.tile = TILE[self.size]
        self.sizes = (self.queries, keys, head_dim, head_dim**-0.5)
        self.drawn = (round(dropout * 2**24), 1 / (1 - dropout))
        self.key_bucket, self.query_bucket = bucket_of(keys), bucket_of(self.queries)
        self.constants = {**head_dim_constants(head_dim, dtype), "CAUSAL": causal, "DROPOUT": dropout > 0}
        self.key_tiles = cdiv(keys, self.tile)
        self.slot_tiles = cdiv(self.key_tiles, tiles.SLOTS.value)
        self.stages = STAGES if self.constants["COARSE"] else 1

    def forward(self, inputs: KernelInputs, output: Tensor, lam: Tensor) -> Tensor | None:
        """Write output and λ; of long rows, returns which slots have weights, see :mod:`.tiles`."""
        unit, strides = strides_of(*inputs[:3], output)
        heads = self.batch * self.heads
        short = self.keys <= RESIDENT
        columns = self.key_bucket if short else self.tile
        rows = min(QUERIES[columns] if short else self.tile, self.tile, self.query_bucket)
        query_tiles = cdiv(self.queries, rows)
        arguments = [*strides, lam, query_tiles, *self._last(inputs)]
        if short:
            kernel = forward.forward_short
            self._launch(kernel, heads * query_tiles, arguments, rows, columns, unit, stages=1)
            return None
        slots = cdiv(self.key_tiles, self.slot_tiles)
        flags = lam.new_empty(heads, query_tiles, slots, dtype=torch.int8)
        scratch = lam.new_empty(heads, query_tiles, slots * rows + self.key_tiles)
        arguments += [flags, scratch, self.key_tiles, self.slot_tiles]
        kernel = forward.forward_long
        self._launch(kernel, heads * query_tiles, arguments, rows, columns, unit, self.stages)
        return flags

    def backward(
        self, inputs: KernelInputs, grad: Tensor, grads: tuple[Tensor, ...], saved: Saved, need_alpha: bool
    ) -> Tensor | None:
        """Write gradients of queries, keys and values; returns parts (B, H, tiles) of α's if needed."""
        together = max(self.queries, self.keys) <= ONE_KERNEL[self.size]
        columns = self.key_bucket if together else self.tile
        rows = min(BACKWARD_QUERIES[columns] if together else self.tile, self.query_bucket)
        query_tiles = 1 if together else cdiv(self.queries, rows)
        lam, flags = (*saved, None)[:2]
        assert lam is not None
        partial = lam.new_empty(self.batch, self.heads, query_tiles) if need_alpha else None
        unit, strides = strides_of(*inputs[:3], grad, *grads)
        last = self._last(inputs)
        heads = self.batch * self.heads
        if together:
            arguments = [*strides, lam, partial, *last]
            self._launch(backward.backward_short, heads, arguments, rows, columns, unit, stages=1)
            return partial
        mean, narrow = torch.empty_like(lam), min(columns, BACKWARD_KEYS)
        lists = None if flags is None else lam.new_empty(heads, query_tiles, cdiv(self.keys, narrow))
        shared_strides, queried, keyed = strides[:16], strides[16:20], strides[20:]

        def shared(width: int) -> list:
            slot_tiles = self.slot_tiles * columns // width
            return [lam, mean, flags, lists, query_tiles, cdiv(self.keys, width), slot_tiles]

        arguments = [*shared_strides, *queried, *shared(narrow), partial, *last]
        self._launch(
            backward.backward_queries, heads * query_tiles, arguments, rows, narrow, unit, self.stages
        )
        programs, arguments = heads * self.key_tiles, [*shared_strides, *keyed, *shared(columns), *last]
        self._launch(backward.backward_keys, programs, arguments, rows, columns, unit, self.stages)
        return partial

    def _last(self, inputs: KernelInputs) -> tuple:
        """The arguments that all kernels take last."""
        alpha = inputs.alpha
        sizes = (self.heads, alpha.numel(), *self.sizes)
        return alpha, *mask_of(inputs.key_padding_mask), *sizes, inputs.seed, *self.drawn

    def _launch(
        self, kernel: Any, programs: int, arguments: list, rows: int, columns: int, unit: int, stages: int
    ) -> None:
        """Run a kernel with tiles of ``rows`` queries and ``columns`` keys."""
        own = {"M": rows, "N": columns, "UNIT": unit, "PRECISION": precision(self.size)}
        constants = {**self.constants, **own}
        head_dim = constants["D"]
        largest = max(rows * max(columns, head_dim), columns * head_dim // 2)
        options = schedule(largest, self.size, stages)
        if constants["COARSE"] and head_dim <= 64:
            options["maxnreg"] = MAX_REGISTERS.get(kernel.__name__)
        launching.run(kernel, (programs, 1, 1), arguments, constants, options)


_kept_call = functools.lru_cache(maxsize=256)(Call)  # a batch has few sizes, and each in many layers


def call(inputs: KernelInputs) -> Call:
    """The :class:`Call` for the sizes of these inputs."""
    query, key = inputs[:2]
    return _kept_call(query.shape, key.size(2), query.dtype, inputs.causal, inputs.dropout)


def step(inputs: KernelInputs, output: Tensor, need_weights: bool) -> Tensor | None:
    """Write the output of one query per head, as a sum of products; returns the weights if needed."""
    query, key, value, alpha, padding, *_ = inputs
    batch, heads, _, head_dim = query.shape
    keys = key.size(2)
    weights = query.new_empty(batch, heads, 1, keys) if need_weights else None
    unit, strides = strides_of(query, key, value, output)
    sizes = (heads, alpha.numel(), keys, head_dim, head_dim**-0.5)
    constants = dict(head_dim_constants(head_dim, query.dtype))
    row = columns = bucket_of(keys)
    scratch = None
    if keys > RESIDENT:
        columns = TILE[query.element_size()]
        scratch = query.new_empty(batch, heads, keys, dtype=torch.float32)
    constants.update(N=columns, ROW=row, UNIT=unit)
    arguments = [*strides, weights, scratch, alpha, *mask_of(padding), *sizes]
    options = schedule(max(columns * constants["D"], STEP_SCORES * row), query.element_size(), 1)
    launching.run(forward.forward_step, (batch * heads, 1, 1), arguments, constants, options)
    return weights
