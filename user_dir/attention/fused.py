"""Attention by Triton kernels for the GPU: weights are never in memory, α learns, only λ is kept.

Kernels are compiled once for each bucket of lengths (the next power of two), not for a length, a batch or an
α. Short rows, up to ``RESIDENT`` keys, are solved on chip; longer ones go over tiles of keys, past those that
have no weight. All is deterministic.

The design is that of FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135), which AdaSplash
(Gonçalves et al. 2025, https://arxiv.org/abs/2502.12082) took to α-entmax; here α is a tensor with a
gradient, and a row leaves one λ in the place of a second output.
"""

from __future__ import annotations

import functools
import math
from typing import Optional

import torch
import triton
from torch import Tensor

from . import fused_backward, fused_forward
from .heads import dense_rows, empty_output, gradient_of_alpha, is_per_head

# --------------------------------------------------------------------- sizes, chosen for sm_80 and sm_90
RESIDENT = 256  # keys of the longest row that is one tile
# Queries and keys of the longest head with one kernel for all its gradients, by bytes of a number: its keys
# and values lie in shared memory altogether.
ONE_KERNEL = {2: 128, 4: 64}
QUERIES = {16: 16, 32: 32, 64: 64, 128: 64, 256: 32}  # of a tile, by the bucket of keys
TILE = 64  # queries and keys of a tile of longer rows
BACKWARD_QUERIES = 32  # of a tile, where one kernel gives all gradients: keys and values hold the registers
# Elements of the largest tile to a lane: the solver holds four such tiles, and 128 registers let two programs
# of eight warps share a multiprocessor.
PER_LANE = 16
# Before 3.3, Triton ends the process over a tile of 64 queries that several groups of four warps multiply.
MOST_WARPS = 16 if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 3) else 4
# Bytes of shared memory that a program can have → D, the depth of heads for which they do in every dtype.
DEEPEST = {
    160 * 1024: 128,  # sm_80, sm_90 and beyond
    99 * 1024: 64,  # sm_86 and sm_89
}
STAGES = 2  # tiles on the way at once, where a loop goes over tiles; those of float32 leave no room for two

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def why_not(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    dropout: float,
    need_weights: bool,
) -> Optional[str]:
    """What the kernels are not made for, in words; None for arguments that they take."""
    batch, heads, _, depth = query.shape
    keys = key.size(2)
    if query.dtype not in DTYPES or not query.dtype == key.dtype == value.dtype:
        return f"queries, keys and values are of {query.dtype}, {key.dtype} and {value.dtype}"
    deepest = _deepest(query.device)
    if depth > deepest or value.size(3) != depth:
        return f"heads are {depth} deep and their values {value.size(3)}; at most {deepest} here, and alike"
    if not query.numel() or not key.numel():
        return "there are no queries or no keys"
    if isinstance(alpha, Tensor) and not is_per_head(alpha, heads):
        return f"alpha has the shape {tuple(alpha.shape)}, not one entry per head"
    if attn_mask is not None:
        return "there is an attn_mask other than that of the future"
    if key_padding_mask is not None and key_padding_mask.shape != (batch, keys):
        return f"the key_padding_mask has the shape {tuple(key_padding_mask.shape)}"
    if dropout >= 1:
        return "all weights are dropped"
    if need_weights and not is_step(query, key, value, alpha, dropout):
        return "attention weights are asked for"
    return None


def is_step(query: Tensor, key: Tensor, value: Tensor, alpha: float | Tensor, dropout: float) -> bool:
    """Whether this is a step of decoding, one query without gradients."""
    tensors = [tensor for tensor in (query, key, value, alpha) if isinstance(tensor, Tensor)]
    learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return query.size(2) == 1 and key.size(2) <= RESIDENT and dropout == 0.0 and not learning


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Optional[Tensor]]:
    """Attention as of :func:`~user_dir.attention.op.attention`, for what :func:`why_not` has nothing against.

    Computes in float32, from and to the dtype of ``query``. The host does not look into a tensor α: below 1
    it gives NaN.
    """
    alpha = alpha.to(query.device) if isinstance(alpha, Tensor) else _constant(alpha, query.device)
    if key_padding_mask is not None:
        key_padding_mask = dense_rows(key_padding_mask.to(torch.bool))
    if is_step(query, key, value, alpha, dropout):
        return _step(query, key, value, alpha, key_padding_mask, need_weights)
    return _Attention.apply(query, key, value, alpha, key_padding_mask, causal, dropout), None


class _Attention(torch.autograd.Function):
    """Autograd around the kernels; saves its inputs and λ, one float32 per row."""

    @staticmethod
    def forward(
        ctx,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        alpha: Tensor,
        padding: Optional[Tensor],
        causal: bool,
        dropout: float,
    ) -> Tensor:
        """Output (B, H, T, D), as a view of (T, B, H, D)."""
        query, key, value = (dense_rows(tensor.detach()) for tensor in (query, key, value))
        batch, heads, queries, _ = query.shape
        # Drawn on the host, whose generator a seed governs as well as the device's, and waits for nothing.
        seed = int(torch.randint(2**31 - 1, ())) if dropout > 0 else 0
        output = empty_output(query)
        lam = query.new_empty(batch, heads, queries, dtype=torch.float32)
        call = _Call(query, key, alpha, padding, causal, dropout, seed)
        call.forward(query, key, value, output, lam)
        ctx.save_for_backward(query, key, value, alpha, padding, lam)
        ctx.settings = (causal, dropout, seed)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor):
        """Gradients of queries, keys, values and α."""
        query, key, value, alpha, padding, lam = ctx.saved_tensors
        grads = [torch.empty_like(tensor) for tensor in (query, key, value)]
        call = _Call(query, key, alpha, padding, *ctx.settings)
        tensors = (query, key, value, dense_rows(grad), *grads)
        grad_alpha = call.backward(*tensors, lam, need_alpha=ctx.needs_input_grad[3])
        return (*grads, grad_alpha, None, None, None)


class _Call:
    """What the kernels of one call, forward or backward, are given in common."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        alpha: Tensor,
        padding: Optional[Tensor],
        causal: bool,
        dropout: float,
        seed: int,
    ):
        self.batch, self.heads, self.queries, self.depth = query.shape
        self.keys = key.size(2)
        self.alpha = alpha.detach()
        self.device = query.device
        self.mask = (None, 0) if padding is None else (padding.view(torch.uint8), padding.stride(0))
        sizes = (self.heads, alpha.numel(), self.queries, self.keys, self.depth, self.depth**-0.5)
        self.scalars = (*sizes, seed, round(dropout * 2**24), 1 / (1 - dropout))
        self.key_bucket, self.query_bucket = _bucket(self.keys), _bucket(self.queries)
        self.constants = {**_depth_constants(query), "CAUSAL": causal, "DROPOUT": dropout > 0}
        self.stages = STAGES if self.constants["COARSE"] else 1

    def forward(self, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lam: Tensor) -> None:
        """Write ``output`` and ``lam``."""
        unit, strides = _strides(query, key, value, output)
        arguments = [*strides, lam, self.alpha, *self.mask, *self.scalars]
        if self.keys <= RESIDENT:
            columns = self.key_bucket
            rows = min(QUERIES[columns], self.query_bucket)
            grid = (self.batch * self.heads, triton.cdiv(self.queries, rows))
            self._launch(fused_forward.forward_short, grid, arguments, rows, columns, unit, stages=1)
            return
        rows = min(TILE, self.query_bucket)
        tiles = (self.batch * self.heads, triton.cdiv(self.queries, rows), triton.cdiv(self.keys, TILE))
        alive = torch.empty(tiles, dtype=torch.int8, device=self.device)
        arguments += [alive, tiles[2]]
        self._launch(fused_forward.forward_long, tiles[:2], arguments, rows, TILE, unit, self.stages)

    def backward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        grad: Tensor,
        grad_query: Tensor,
        grad_key: Tensor,
        grad_value: Tensor,
        lam: Tensor,
        need_alpha: bool,
    ) -> Optional[Tensor]:
        """Write the gradients of query, key and value; returns that of α, or None."""
        unit, strides = _strides(query, key, value, grad, grad_query, grad_key, grad_value)
        given, queried, keyed = strides[:16], strides[16:20], strides[20:]
        last = (self.alpha, *self.mask, *self.scalars)
        together = max(self.queries, self.keys) <= ONE_KERNEL[query.element_size()]
        columns = self.key_bucket if together else TILE
        rows = min(BACKWARD_QUERIES if together else TILE, self.query_bucket)
        heads = self.batch * self.heads
        query_tiles = 1 if together else triton.cdiv(self.queries, rows)
        shape = (self.batch, self.heads, query_tiles)
        partial = torch.empty(shape, dtype=torch.float32, device=self.device) if need_alpha else None
        if together:
            arguments = [*strides, lam, partial, *last]
            self._launch(
                fused_backward.backward_short, (heads,), arguments, rows, columns, unit, stages=1, held=2
            )
        else:
            key_tiles = triton.cdiv(self.keys, columns)
            alive = torch.empty(heads, query_tiles, key_tiles, dtype=torch.int8, device=self.device)
            mean = torch.empty_like(lam)
            arguments = [*given, *queried, lam, mean, alive, key_tiles, partial, *last]
            grid = (heads, query_tiles)
            self._launch(fused_backward.backward_queries, grid, arguments, rows, columns, unit, self.stages)
            arguments = [*given, *keyed, lam, mean, alive, query_tiles, *last]
            grid = (heads, key_tiles)
            self._launch(fused_backward.backward_keys, grid, arguments, rows, columns, unit, self.stages)
        if partial is None:
            return None
        return gradient_of_alpha(partial.sum(2, dtype=torch.float64), self.alpha)

    def _launch(
        self,
        kernel,
        grid: tuple[int, ...],
        arguments: list,
        rows: int,
        columns: int,
        unit: int,
        stages: int,
        held: int = 1,
    ) -> None:
        """Run a kernel with tiles of ``rows`` queries and ``columns`` keys.

        ``held``: how many tiles of (columns, D) stay in registers besides.
        """
        depth = self.constants["D"]
        largest = max(rows * max(columns, depth), held * columns * depth // 2)
        with torch.cuda.device_of(self.alpha):
            kernel[grid](
                *arguments, M=rows, N=columns, UNIT=unit, **self.constants, **_schedule(largest, stages)
            )


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    padding: Optional[Tensor],
    need_weights: bool,
) -> tuple[Tensor, Optional[Tensor]]:
    """One query per head, as a sum of products."""
    query, key, value = (dense_rows(tensor.detach()) for tensor in (query, key, value))
    batch, heads, _, depth = query.shape
    keys = key.size(2)
    output = empty_output(query)
    weights = query.new_empty(batch, heads, 1, keys) if need_weights else None
    mask = (None, 0) if padding is None else (padding.view(torch.uint8), padding.stride(0))
    unit, strides = _strides(query, key, value, output)
    sizes = (heads, alpha.numel(), keys, depth, depth**-0.5)
    constants = _depth_constants(query)
    del constants["PRECISION"]
    columns = _bucket(keys)
    with torch.cuda.device_of(query):
        fused_forward.forward_step[(batch * heads,)](
            *strides,
            weights,
            alpha.detach(),
            *mask,
            *sizes,
            N=columns,
            UNIT=unit,
            **constants,
            **_schedule(columns * constants["D"], 1),
        )
    return output, weights


def _schedule(elements: int, stages: int) -> dict:
    """How a program is laid out whose largest tile has so many elements."""
    warps = max(1, min(MOST_WARPS, elements // (32 * PER_LANE)))
    return {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


def _depth_constants(query: Tensor) -> dict:
    """The constants of a kernel that follow from what queries are."""
    depth = query.size(3)
    bucket = _bucket(depth)
    coarse = query.dtype != torch.float32
    exact = coarse or torch.get_float32_matmul_precision() == "highest"
    precision = "ieee" if exact else "tf32"
    return {"D": bucket, "WHOLE": bucket == depth, "PRECISION": precision, "COARSE": coarse}


def _bucket(count: int) -> int:
    """The next power of two, and at least 16, as a product of tiles needs."""
    return max(16, triton.next_power_of_2(count))


def _strides(*tensors: Tensor) -> tuple[int, list]:
    """A unit that all strides over batch, heads and rows are multiples of; the tensors, each with them."""
    strides = [[0 if n == 1 else s for n, s in zip(t.shape[:3], t.stride()[:3])] for t in tensors]
    common = math.gcd(*(stride for each in strides for stride in each))
    unit = next(unit for unit in (16, 8, 1) if common % unit == 0)
    arguments: list = []
    for tensor, each in zip(tensors, strides):
        arguments += [tensor, *(stride // unit for stride in each)]
    return unit, arguments


@functools.cache
def _deepest(device: torch.device) -> int:
    """The deepest head that a GPU has the shared memory for."""
    if device.type != "cuda":  # interpreted
        return max(DEEPEST.values())
    index = torch.cuda.current_device() if device.index is None else device.index
    shared = triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"]
    return max((depth for least, depth in DEEPEST.items() if shared >= least), default=0)


@functools.lru_cache(maxsize=64)
def _constant(alpha: float, device: torch.device) -> Tensor:
    """A number as the kernels take it, with all its digits."""
    return torch.full((1,), alpha, dtype=torch.float64, device=device)
