"""Attention by Triton kernels for the GPU: weights are never stored, α may be learned, λ is saved per row.

Kernels are compiled per bucket of lengths (the next power of two), not per length, batch size or α. Short
rows, up to ``RESIDENT`` keys, are solved on chip; longer ones loop over tiles of keys and skip tiles without
weights. Results are deterministic.

The design follows FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135) and its extension to
α-entmax, AdaSplash (Gonçalves et al. 2025, https://arxiv.org/abs/2502.12082). Here α is a tensor with a
gradient, and one λ is saved per row instead of a second output.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Optional

import torch
import triton
from torch import Tensor

from ..entmax.operators import constant_in_graphs
from . import fused_backward, fused_forward
from .fused_kernel import FusedKernel, is_learning, unsupported
from .head_layouts import dense_rows, empty_output, in_heads
from .inputs import AttentionInputs, KernelInputs

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))

# ------------------------------------------------ sizes, measured on an H200 at head dimension 64 in bfloat16
# Dictionaries with the keys 2 and 4 are by bytes per number: float32 needs three products for one.
RESIDENT = 256  # keys of the longest row that is a single tile
# Most queries and keys for which one kernel computes all gradients of a head: its keys and values must fit
# into shared memory.
ONE_KERNEL = {2: 128, 4: 32}
QUERIES = {16: 16, 32: 16, 64: 64, 128: 64, 256: 32}  # per tile, by bucket of keys
# The same if one kernel computes all gradients: sums for keys and values occupy the registers.
BACKWARD_QUERIES = {16: 16, 32: 32, 64: 64, 128: 16}
TILE = {2: 64, 4: 32}  # queries and keys per tile of longer rows, and most queries per tile of shorter ones
PER_LANE = {2: 32, 4: 16}  # elements of the largest tile per lane
# Registers per lane, so that more programs fit on a multiprocessor, by kernel; float32 and larger head
# dimensions need all there are.
MAX_REGISTERS = {"forward_short": 128, "forward_long": 128, "backward_queries": 168, "backward_keys": 168}
# Triton before 3.3 aborts the process if several groups of four warps multiply a tile of 64 queries.
MAX_WARPS = 16 if TRITON >= (3, 3) else 4
# Shared memory per program in bytes → largest head dimension that fits into it with every dtype.
MAX_HEAD_DIM = {
    160 * 1024: 128,  # sm_80, sm_90 and later
    99 * 1024: 64,  # sm_86 and sm_89
}
# Products of float32 as three products of their halves on tensor cores, as exact as float32 but faster.
# Triton before 3.3 needs more shared memory for them than there is.
EXACT = "tf32x3" if TRITON >= (3, 3) else "ieee"
STAGES = 2  # software pipelining of loops over tiles; float32 tiles do not leave room for two stages

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def supports(inputs: AttentionInputs) -> Optional[str]:
    """None if the kernels support the arguments of :func:`.dispatch.attention`; else the reason why not."""
    query, key, value, alpha, _, attn_mask, _, dropout, need_weights = inputs
    reason = unsupported(inputs, DTYPES)
    if reason is not None:
        return reason
    if query.size(3) > _largest_head_dim(query.device):
        most = _largest_head_dim(query.device)
        return f"head dimension {query.size(3)} exceeds {most}, the maximum of this GPU"
    if attn_mask is not None:
        return "on a GPU it supports no attn_mask; use causal and key_padding_mask"
    if dropout >= 1:
        return "dropout leaves no weights"
    tensors = [each for each in (query, key, value, alpha) if isinstance(each, Tensor)]
    if need_weights and (is_learning(*tensors) or not is_step(query, key, dropout)):
        return "on a GPU it returns attention weights only in decoding steps"
    return None


def is_step(query: Tensor, key: Tensor, dropout: float) -> bool:
    """Whether this is a decoding step, provided that it needs no gradients: one query, and few keys."""
    return query.size(2) == 1 and key.size(2) <= RESIDENT and dropout == 0.0


class TritonAttention(FusedKernel):
    """Computes in float32 and saves λ, one float32 by row.

    The values of α are not checked, which would synchronise with the device: an α below 1 gives NaN.
    """

    name, seeds, parts_dtype = "attention_triton", 2**31 - 1, torch.float32

    def forward(
        self, inputs: KernelInputs, need_weights: bool, save: bool, fixed_sizes: bool = False
    ) -> tuple[Tensor, Optional[Tensor], tuple[Optional[Tensor], ...]]:
        """See the base class."""
        output = empty_output(inputs.query)
        if not save and is_step(inputs.query, inputs.key, inputs.dropout):
            return output, _step(inputs, in_heads(output), need_weights), ()
        lam = self.saved_like(inputs)
        Call(inputs).forward(in_heads(output), lam)
        return output, None, (lam,)

    def backward(
        self,
        inputs: KernelInputs,
        saved: tuple[Optional[Tensor], ...],
        grad: Tensor,
        grad_weights: Optional[Tensor],
        need_alpha: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
        """See the base class."""
        assert saved[0] is not None
        query, key, value = (torch.empty_like(each) for each in inputs[:3])
        parts = Call(inputs).backward(grad, (query, key, value), saved[0], need_alpha)
        return query, key, value, parts

    def saved_like(self, inputs: KernelInputs) -> Tensor:
        """λ; see the base class."""
        return inputs.query.new_empty(inputs.query.shape[:3], dtype=torch.float32)


KERNEL = TritonAttention()
fused_attention = KERNEL.attention


class Call:
    """The settings shared by the kernels of one call, forward and backward."""

    def __init__(self, inputs: KernelInputs) -> None:
        query, key, _, alpha, padding, _, causal, dropout, seed = inputs
        self.given = inputs[:3]
        self.batch, self.heads, self.queries, head_dim = query.shape
        self.keys = key.size(2)
        self.size = query.element_size()
        self.tile = TILE[self.size]
        sizes = (self.heads, alpha.numel(), self.queries, self.keys, head_dim, head_dim**-0.5)
        drawn = (0 if seed is None else int(seed), round(dropout * 2**24), 1 / (1 - dropout))
        self.last = (alpha, *_mask(padding), *sizes, *drawn)
        self.key_bucket, self.query_bucket = _bucket(self.keys), _bucket(self.queries)
        self.constants = {**_head_dim_constants(query), "CAUSAL": causal, "DROPOUT": dropout > 0}
        self.stages = STAGES if self.constants["COARSE"] else 1

    def forward(self, output: Tensor, lam: Tensor) -> None:
        """Write both."""
        unit, strides = _strides(*self.given, output)
        arguments = [*strides, lam, *self.last]
        if self.keys <= RESIDENT:
            columns = self.key_bucket
            rows = min(QUERIES[columns], self.tile, self.query_bucket)
            grid = (self.batch * self.heads, _tiles(self.queries, rows))
            self._launch(fused_forward.forward_short, grid, arguments, rows, columns, unit, stages=1)
            return
        rows, columns = min(self.tile, self.query_bucket), self.tile
        tiles = (self.batch * self.heads, _tiles(self.queries, rows), _tiles(self.keys, columns))
        alive = torch.empty(tiles, dtype=torch.int8, device=lam.device)
        arguments += [alive, tiles[2]]
        self._launch(fused_forward.forward_long, tiles[:2], arguments, rows, columns, unit, self.stages)

    def backward(
        self, grad: Tensor, grads: tuple[Tensor, ...], lam: Tensor, need_alpha: bool
    ) -> Optional[Tensor]:
        """Write gradients of queries, keys and values; returns parts (B, H, tiles) of that of α if needed."""
        unit, strides = _strides(*self.given, grad, *grads)
        together = max(self.queries, self.keys) <= ONE_KERNEL[self.size]
        columns = self.key_bucket if together else self.tile
        rows = min(BACKWARD_QUERIES[columns] if together else self.tile, self.query_bucket)
        heads = self.batch * self.heads
        query_tiles = 1 if together else _tiles(self.queries, rows)
        shape = (self.batch, self.heads, query_tiles)
        partial = torch.empty(shape, dtype=torch.float32, device=lam.device) if need_alpha else None
        if together:
            arguments = [*strides, lam, partial, *self.last]
            self._launch(fused_backward.backward_short, (heads, 1), arguments, rows, columns, unit, stages=1)
            return partial
        given, queried, keyed = strides[:16], strides[16:20], strides[20:]
        key_tiles = _tiles(self.keys, columns)
        alive = torch.empty(heads, query_tiles, key_tiles, dtype=torch.int8, device=lam.device)
        mean = torch.empty_like(lam)
        arguments = [*given, *queried, lam, mean, alive, key_tiles, partial, *self.last]
        grid = (heads, query_tiles)
        self._launch(fused_backward.backward_queries, grid, arguments, rows, columns, unit, self.stages)
        arguments = [*given, *keyed, lam, mean, alive, query_tiles, *self.last]
        grid = (heads, key_tiles)
        self._launch(fused_backward.backward_keys, grid, arguments, rows, columns, unit, self.stages)
        return partial

    def _launch(
        self,
        kernel: Any,
        grid: tuple[int, int],
        arguments: list,
        rows: int,
        columns: int,
        unit: int,
        stages: int,
    ) -> None:
        """Run a kernel with tiles of ``rows`` queries and ``columns`` keys."""
        constants = {"M": rows, "N": columns, **self.constants, "UNIT": unit}
        head_dim = constants["D"]
        largest = max(rows * max(columns, head_dim), columns * head_dim // 2)
        options = _schedule(largest, self.size, stages)
        if constants["COARSE"] and head_dim <= 64:
            options["maxnreg"] = MAX_REGISTERS.get(kernel.__name__)
        _run(kernel, (*grid, 1), arguments, constants, options)


def _step(inputs: KernelInputs, output: Tensor, need_weights: bool) -> Optional[Tensor]:
    """Write the output of one query per head, as a sum of products; returns the weights if needed."""
    query, key, value, alpha, padding, *_ = inputs
    batch, heads, _, head_dim = query.shape
    keys = key.size(2)
    weights = query.new_empty(batch, heads, 1, keys) if need_weights else None
    unit, strides = _strides(query, key, value, output)
    sizes = (heads, alpha.numel(), keys, head_dim, head_dim**-0.5)
    constants = _head_dim_constants(query)
    del constants["PRECISION"]
    columns = _bucket(keys)
    _run(
        fused_forward.forward_step,
        (batch * heads, 1, 1),
        [*strides, weights, alpha, *_mask(padding), *sizes],
        {"N": columns, "UNIT": unit, **constants},
        _schedule(columns * constants["D"], query.element_size(), 1),
    )
    return weights


# Triton's versions whose compiled kernels take all arguments in order, constants included.
DIRECT = (3, 6) <= TRITON <= (3, 7)
# What Triton compiles a kernel for → the kernel, and its constants in order.
_compiled: dict[tuple, tuple[Any, tuple]] = {}


def _run(kernel: Any, grid: tuple[int, int, int], arguments: list, constants: dict, options: dict) -> None:
    """Launch a kernel, from its second launch on without Triton's slower binding of arguments."""
    with torch.cuda.device_of(arguments[0]):
        if not DIRECT:
            kernel[grid](*arguments, **constants, **options)
            return
        kinds = [
            each.bit_length() < 32
            if type(each) is int
            else (each.dtype, each.data_ptr() % 16)
            if isinstance(each, Tensor)
            else type(each)
            for each in arguments
        ]
        key = (kernel, arguments[0].device, *kinds, *constants.values(), *options.values())
        if key in _compiled:
            compiled, ordered = _compiled[key]
            compiled[grid](*arguments, *ordered)
            return
        compiled = kernel[grid](*arguments, **constants, **options)
        if compiled is not None:  # Triton's interpreter returns None
            _compiled[key] = compiled, tuple(constants[n] for n in kernel.arg_names if n in constants)


def _schedule(elements: int, size: int, stages: int) -> dict:
    """Warps and stages of a program, given the number of elements of its largest tile and their bytes."""
    warps = max(1, min(MAX_WARPS, elements // (32 * PER_LANE[size])))
    return {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


def _head_dim_constants(query: Tensor) -> dict:
    """The constants of a kernel determined by the dtype and head dimension of the queries."""
    head_dim = query.size(3)
    bucket = _bucket(head_dim)
    coarse = query.dtype != torch.float32
    precision = "ieee"
    if not coarse:
        precision = EXACT if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return {"D": bucket, "WHOLE": bucket == head_dim, "PRECISION": precision, "COARSE": coarse}


def _bucket(count: int) -> int:
    """The next power of two, at least 16, the minimum of tile products."""
    return max(16, 1 << (count - 1).bit_length())


def _tiles(count: int, size: int) -> int:
    """The number of tiles of ``size`` rows."""
    return -(-count // size)


def _mask(padding: Optional[Tensor]) -> tuple[Optional[Tensor], int]:
    """A padding mask as bytes, and its stride."""
    if padding is None:
        return None, 0
    padding = dense_rows(padding)
    return padding.view(torch.uint8), padding.stride(0)


def _strides(*tensors: Tensor) -> tuple[int, list]:
    """A unit that divides all strides over batch, heads and rows; and the tensors, each with its strides."""
    strides: list = [tensor.stride()[:3] for tensor in tensors]
    common = math.gcd(*itertools.chain(*strides))
    if common % 16:  # without the strides of dimensions of size 1, which can be anything
        strides = [[0 if n == 1 else s for n, s in zip(t.shape[:3], t.stride()[:3])] for t in tensors]
        common = math.gcd(*itertools.chain(*strides))
    unit = next(unit for unit in (16, 8, 1) if common % unit == 0)
    arguments: list = []
    for tensor, (batch, head, row) in zip(tensors, strides):
        arguments += (tensor, batch // unit, head // unit, row // unit)
    return unit, arguments


@constant_in_graphs
def _largest_head_dim(device: torch.device) -> int:
    """The largest head dimension for which a GPU has enough shared memory."""
    return _found_head_dim(device)


@functools.cache
def _found_head_dim(device: torch.device) -> int:
    if device.type != "cuda":  # Triton's interpreter
        return max(MAX_HEAD_DIM.values())
    index = torch.cuda.current_device() if device.index is None else device.index
    shared = triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"]
    return max((head_dim for least, head_dim in MAX_HEAD_DIM.items() if shared >= least), default=0)
