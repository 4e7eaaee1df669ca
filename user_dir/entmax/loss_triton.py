"""The α-entmax loss as Triton kernels: one program per row, which it reads tile by tile at each step.

The forward pass keeps λ and Σ p of a row; the backward pass computes p from them again. Notation and
interface as in ``loss_reference``, the value of the loss as in ``loss_cpu.cpp``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .loss_reference import Settings, new_results
from .triton_solver import exact_power, next_step, unfinished

TILE = 2048  # elements of a row that a program holds at once

_RUN_TIME = ["scores", "target", "losses", "support", "solutions", "grad", "grad_scores", "n", "ignored"]
_kernel = triton.jit(do_not_specialize=_RUN_TIME)


def loss_forward(scores: Tensor, target: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, sizes of the support, and λ with Σ p for the backward; see ``loss_reference``."""
    results = new_results(scores, target)
    _launch(_forward, (scores, target, *results), settings)
    return results


def loss_backward(
    scores: Tensor, target: Tensor, settings: Settings, solutions: Tensor, grad: Tensor
) -> Tensor:
    """The gradient of the scores; see ``loss_reference``."""
    grad_scores = torch.empty_like(scores)
    _launch(_backward, (scores, target, solutions, grad.contiguous(), grad_scores), settings)
    return grad_scores


def _launch(kernel, tensors: tuple[Tensor, ...], settings: Settings) -> None:
    scores, (rows, n) = tensors[0], tensors[0].shape
    # float64 on the device: a Python float would be passed as float32, and a copy would synchronise
    numbers = torch.full((2,), settings.label_smoothing, dtype=torch.float64, device=scores.device)
    numbers[:1].fill_(settings.alpha - 1)
    dtype = tl.float64 if scores.dtype == torch.float64 else tl.float32
    with torch.cuda.device_of(scores):
        arguments = *tensors, numbers, n, settings.ignore_index
        kernel[(rows,)](*arguments, TILE=TILE, DTYPE=dtype, num_warps=8, enable_fp_fusion=True)


@_kernel
def _forward(
    scores, target, losses, support, solutions, settings, n, ignored, TILE: tl.constexpr, DTYPE: tl.constexpr
):
    """Loss, support and (max z, λ, Σ p) of one row."""
    row = tl.program_id(0).to(tl.int64)
    own_column = tl.load(target + row)
    eps = tl.load(settings).to(DTYPE)
    smoothing = tl.load(settings + 1).to(DTYPE)
    scores += row * n
    columns = tl.arange(0, TILE)[None, :]
    nothing = tl.zeros([1, TILE], DTYPE)
    counted = own_column != ignored
    wrong = counted & ((own_column < 0) | (own_column >= n))  # to raise an error would synchronise

    top, whole, some_broken = _top(scores, n, TILE, DTYPE)
    some_broken = some_broken | wrong
    shift = tl.where((top == float("-inf")) | some_broken, 0.0, top)[:, None]
    lam = _threshold(scores, n, shift, eps, counted, TILE, DTYPE)
    mass = nothing
    slope = nothing
    excess = nothing
    found = tl.zeros([1, TILE], tl.int64)
    for first in range(0, n, TILE):
        p, w, x = _weights(scores, first + columns, n, shift, lam, eps, DTYPE)
        mass += p
        slope += w
        excess += tl.where(p > 0, p * x, 0.0)
        found += (p > 0).to(tl.int64)
    total = tl.sum(mass, 1)
    over = total - 1.0
    slopes = tl.sum(slope, 1)
    slopes = tl.where(slopes == 0, 1.0, slopes)
    dual = lam + (over + tl.sum(excess, 1)) / (1.0 + eps) - over * over / (2.0 * slopes)
    own = tl.load(scores + tl.where(counted & (wrong == 0), own_column, 0)).to(DTYPE) - tl.sum(shift, 1)
    loss = dual - own
    if smoothing > 0:
        loss += smoothing * (own - (whole / n - tl.sum(shift, 1)))
    loss = tl.where(top == float("-inf"), float("inf"), loss)
    loss = tl.where(some_broken, float("nan"), loss)
    one = tl.arange(0, 1)
    tl.store(losses + row + one, tl.where(counted, loss, 0.0))
    tl.store(support + row + one, tl.where(counted & (top == top) & (some_broken == 0), tl.sum(found, 1), 0))
    solutions += row * 3
    tl.store(solutions + one, tl.where(some_broken & counted, float("nan"), top))
    tl.store(solutions + 1 + one, lam)
    tl.store(solutions + 2 + one, tl.where(total == 0, 1.0, total))


@triton.jit
def _top(scores, n, TILE: tl.constexpr, DTYPE: tl.constexpr):
    """The maximum of a row, its sum, and whether it has a NaN or +∞."""
    columns = tl.arange(0, TILE)[None, :]
    top = tl.full([1, TILE], float("-inf"), DTYPE)
    broken = tl.zeros([1, TILE], tl.int32)
    sums = tl.zeros([1, TILE], DTYPE)
    for first in range(0, n, TILE):
        z = tl.load(scores + first + columns, mask=first + columns < n, other=float("-inf")).to(DTYPE)
        broken += (z != z).to(tl.int32)
        top = tl.maximum(top, z)
        sums += tl.where(first + columns < n, z, 0.0)
    greatest = tl.max(top, 1)
    return greatest, tl.sum(sums, 1), (tl.sum(broken, 1) > 0) | (greatest == float("inf"))


@triton.jit
def _threshold(scores, n, shift, eps, moving, TILE: tl.constexpr, DTYPE: tl.constexpr):
    """λ relative to the maximum, by Newton's method on ‖u‖ = 1 from there; 0 unless ``moving``."""
    columns = tl.arange(0, TILE)[None, :]
    lam = tl.zeros([1], DTYPE)
    steps = 0
    while moving:
        mass = tl.zeros([1, TILE], DTYPE)
        slope = tl.zeros([1, TILE], DTYPE)
        for first in range(0, n, TILE):
            p, w, _ = _weights(scores, first + columns, n, shift, lam, eps, DTYPE)
            mass += p
            slope += w
        step, far, _ = next_step(tl.sum(mass, 1), tl.sum(slope, 1), lam, lam, eps)
        lam += step
        steps += 1
        moving = unfinished(far, steps)
    return lam


@_kernel
def _backward(
    scores, target, solutions, grad, grad_scores, settings, n, ignored,
    TILE: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """grad · (p − (1 − s) e_y − s/n) of one row."""
    row = tl.program_id(0).to(tl.int64)
    own_column = tl.load(target + row)
    eps = tl.load(settings).to(DTYPE)
    smoothing = tl.load(settings + 1).to(DTYPE)
    one = tl.arange(0, 1)
    top = tl.load(solutions + row * 3 + one)
    lam = tl.load(solutions + row * 3 + 1 + one)
    total = tl.load(solutions + row * 3 + 2 + one)
    upstream = tl.load(grad + row)
    columns = tl.arange(0, TILE)[None, :]
    there = (own_column != ignored) & (top != float("-inf"))
    shift = tl.where(there, top, 0.0)[:, None]
    scores += row * n
    grad_scores += row * n
    for first in range(0, n, TILE):
        at = first + columns
        p, _, _ = _weights(scores, at, n, shift, lam, eps, DTYPE)
        found = p / total[:, None] - smoothing / n - tl.where(at == own_column, 1.0 - smoothing, 0.0)
        found = tl.where(top[:, None] == top[:, None], found, float("nan"))
        tl.store(grad_scores + at, tl.where(there[:, None], upstream * found, 0.0), mask=at < n)


@triton.jit
def _weights(scores, columns, n, shift, lam, eps, DTYPE: tl.constexpr):
    """p = u^(1/ε), w = p/u and u − 1 of a tile, where u = [1 + ε (z − λ)]₊."""
    z = tl.load(scores + columns, mask=columns < n, other=float("-inf")).to(DTYPE) - shift
    x = eps * (z - lam[:, None])
    p, w = exact_power(x, eps)
    return p, w, x
