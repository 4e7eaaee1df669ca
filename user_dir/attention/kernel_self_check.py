"""Compares the fused attention for GPUs with dense attention before ``auto`` takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

import torch
from torch import Tensor

from ..entmax import reference
from ..entmax.differentiable import Entmax
from ..entmax.operators import constant_in_graphs
from ..entmax.self_check import ALPHAS, Comparison, SelfCheck
from .dense import attention_scores
from .inputs import AttentionInputs

# Weights and gradients of scores are rounded to the dtype before they are multiplied.
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_TF32 = 1e-2  # products of 10-bit mantissas, where torch's settings ask for them

BATCH, HEADS = 2, len(ALPHAS)
LAUNCHES = 2  # the first goes through Triton, later ones do not (``launching.run``); the last is compared


def passes_check(query: Tensor, long_step: bool = False) -> bool:
    """Whether the fused kernels compute what dense attention does on this device, dtype and head dimension.

    Decoding steps of many keys are checked apart, so that a training need not compile them.

    See :meth:`.SelfCheck.passes`; False also while a CUDA graph is captured before the check was made.
    """
    return _verdict(query.device, query.dtype, int(query.size(-1)), long_step)


@constant_in_graphs
def _verdict(device: torch.device, dtype: torch.dtype, head_dim: int, long_step: bool) -> bool:
    precision = torch.get_float32_matmul_precision() if dtype == torch.float32 else "highest"
    apart = ("long decoding steps",) if long_step else ()
    return bool(attention_check.passes(device, dtype, head_dim, precision, *apart))


def _compare(
    device: torch.device, dtype: torch.dtype, head_dim: int, precision: str, *long_step: str
) -> Iterator[Comparison]:
    """Output and all gradients on a small problem for each kernel; no length is a multiple of a tile."""
    from . import fused

    tolerance = _TOLERANCE[dtype] if precision == "highest" else _TF32
    if long_step:
        yield from _compare_step(fused.RESIDENT + 7, device, dtype, head_dim, tolerance)
        return
    longest, tile = fused.ONE_KERNEL[dtype.itemsize] - 3, fused.TILE[dtype.itemsize]
    problems = (
        # queries, keys, padding on the right, causal
        (longest, longest, False, True),  # one kernel for all gradients
        (19, fused.RESIDENT - 3, True, False),  # one for queries, one for keys
        (tile + 5, fused.RESIDENT + 7, False, False),  # tile by tile in the forward, too
    )
    generator = torch.Generator().manual_seed(1)
    for queries, keys, right, causal in problems:
        inputs = _inputs(queries, keys, head_dim, dtype, generator)
        padding = _padding(keys, right)
        grad = _random(queries, head_dim, dtype, generator)
        q, k, v, alpha = leaves = [tensor.to(device).requires_grad_() for tensor in inputs]
        for _ in range(LAUNCHES):
            output, _ = fused.fused_attention(
                AttentionInputs(q, k, v, alpha, padding.to(device), causal=causal)
            )
            grads = torch.autograd.grad(output, leaves, grad.to(device))

        q, k, v, alpha = leaves = [tensor.double().requires_grad_() for tensor in inputs]
        expected, _ = _exact(q, k, v, alpha, padding, causal)
        expected_grads = torch.autograd.grad(expected, leaves, grad.double())
        what = f"with {queries} queries and {keys} keys"
        yield f"the output {what}", output, expected.detach(), tolerance
        names = ("the queries", "the keys", "the values", "α")
        for name, each, other in zip(names, grads, expected_grads):
            yield f"the gradient of {name} {what}", each, other, tolerance
    yield from _compare_step(13, device, dtype, head_dim, tolerance)


def _compare_step(
    keys: int, device: torch.device, dtype: torch.dtype, head_dim: int, tolerance: float
) -> Iterator[Comparison]:
    """Output and weights of a decoding step."""
    from . import fused

    generator = torch.Generator().manual_seed(1)
    inputs, padding = _inputs(1, keys, head_dim, dtype, generator), _padding(keys, right=True)
    with torch.no_grad():
        q, k, v, alpha = (tensor.to(device) for tensor in inputs)
        for _ in range(LAUNCHES):
            given = AttentionInputs(q, k, v, alpha, padding.to(device), need_weights=True)
            output, weights = fused.fused_attention(given)
        q, k, v, alpha = (tensor.double() for tensor in inputs)
        expected, expected_weights = _exact(q, k, v, alpha, padding, False)
    assert weights is not None
    yield f"the output of a decoding step with {keys} keys", output, expected, tolerance
    yield f"the weights of a decoding step with {keys} keys", weights, expected_weights, tolerance


def _inputs(
    queries: int, keys: int, head_dim: int, dtype: torch.dtype, generator: torch.Generator
) -> list[Tensor]:
    """Queries, keys, values, and one α per head."""
    tensors = [_random(length, head_dim, dtype, generator) for length in (queries, keys, keys)]
    return [*tensors, torch.tensor(ALPHAS).view(-1, 1, 1)]


def _random(length: int, head_dim: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """(B, H, length, D), in memory as a projection returns it."""
    numbers = torch.randn(length, BATCH, HEADS, head_dim, generator=generator, dtype=torch.float32)
    return (1.5 * numbers).to(dtype).permute(1, 2, 0, 3)


def _padding(keys: int, right: bool) -> Tensor:
    """The second sentence is shorter by a third."""
    mask = torch.zeros(BATCH, keys, dtype=torch.bool)
    third = keys // 3
    mask[1, slice(keys - third, keys) if right else slice(third)] = True
    return mask


def _exact(
    query: Tensor, key: Tensor, value: Tensor, alpha: Tensor, padding: Optional[Tensor], causal: bool
) -> tuple[Tensor, Tensor]:
    """Dense attention in plain torch: output and weights."""
    weights = Entmax.apply(attention_scores(query, key, padding, None, causal), alpha, -1, reference)
    return weights @ value, weights


attention_check = SelfCheck("fused attention", "dense attention", _compare)
