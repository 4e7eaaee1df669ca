"""Reference implementation of α-entmax in plain torch, for any floating dtype and device.

Notation: z is a row of scores, ε = α − 1 and p = α-entmax(z), that is

    p_i = [1 + ε (z_i − λ)]₊^(1/ε),  where λ is the unique threshold with Σ p_i = 1

(Peters et al. 2019, https://arxiv.org/abs/1905.05702). In this parametrisation the limit ε → 0 is regular:
p becomes softmax and λ the logsumexp. α is a tensor that broadcasts against the scores with size 1 at
``dim``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _never_zero(eps: Tensor) -> Tensor:
    """ε as a divisor: 0 is replaced by a value so small that results equal those of the limit ε → 0."""
    return eps.clamp_min(1e-20)  # a normal float32, far below 1.2e-7, the smallest nonzero α − 1


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: float64 for float64, float32 for every other dtype."""
    if dtype == torch.float64:
        return torch.float64
    return torch.float32


def entmax_forward(scores: Tensor, alpha: Tensor, dim: int = -1) -> Tensor:
    """Compute the weights α-entmax(scores) along ``dim``, without autograd; TorchScript can compile it.

    Args:
        scores: any shape; a score of −inf gets weight 0.
        alpha: ≥ 1, broadcasts against ``scores``, size 1 at ``dim``.

    Returns:
        Weights of the shape and dtype of ``scores``; rows that are all −inf are all zeros.
    """
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    dtype = working_dtype(scores.dtype)
    # Subtract 1 before rounding to a narrower dtype: near α = 1 the significant digits are those of ε.
    eps = (alpha - 1).to(dtype)
    z = scores.to(dtype)
    top = z.amax(dim, keepdim=True)
    empty = top == float("-inf")
    some_empty = bool(empty.any())
    if some_empty:
        z = z.masked_fill(empty, 0.0)
        top = top.masked_fill(empty, 0.0)
    z = z - top

    weights = _weights_at(z, _threshold(z, eps, dim), eps)
    weights = weights / weights.sum(dim, keepdim=True)
    if bool((eps == 0).any()):
        weights = torch.where(eps == 0, torch.softmax(z, dim), weights)
    if some_empty:
        weights = weights.masked_fill(empty, 0.0)
    return weights.to(scores.dtype)


def _threshold(z: Tensor, eps: Tensor, dim: int) -> Tensor:
    """λ for scores ``z`` whose maximum along ``dim`` is 0."""
    if bool((eps > 1).any()):
        return _threshold_by_bisection(z, eps, dim)
    return _threshold_by_newton(z, eps, dim)


def _threshold_by_newton(z: Tensor, eps: Tensor, dim: int) -> Tensor:
    """λ by Newton's method on ‖u‖ = 1 with u = [1 + ε(z − λ)]₊, for 0 ≤ ε ≤ 1.

    ‖u‖ = (Σ u^(1/ε))^ε is a norm, hence convex in λ, and decreasing. Starting from λ = max z = 0, where it is
    at least 1, no step overshoots the root, so no bracket is needed.
    """
    eps = _never_zero(eps)
    resolution = 1e-15 if z.dtype == torch.float64 else 5e-7
    lam = torch.zeros_like(z.amax(dim, keepdim=True))
    # Attention scores need 3 to 8 steps; the bound stops rows that alternate between neighbouring floats.
    for _ in range(40):
        u = (eps * (z - lam)).add_(1.0)
        p = _weights_at(z, lam, eps)
        mass = p.sum(dim, keepdim=True)
        slope = p.div_(u.clamp_min_(1e-37)).sum(dim, keepdim=True)
        # (S − S^(1−ε)) / (εD), in a form that tends to log S for ε → 0
        step = -mass * torch.expm1(-eps * torch.log(mass)) / (eps * slope)
        lam = lam + step
        if not bool((step > resolution * (1 + lam)).any()):
            break
    return lam


def _threshold_by_bisection(z: Tensor, eps: Tensor, dim: int) -> Tensor:
    """λ for any ε ≥ 0 by bisection of [0, (1 − n^−ε)/ε]; slow, but valid for ε > 1, where ‖u‖ is no norm."""
    eps = _never_zero(eps)
    log_n = torch.log(torch.full_like(z.amax(dim, keepdim=True), z.size(dim)))
    low = torch.zeros_like(log_n)
    width = -torch.expm1(-eps * log_n) / eps
    steps = 60 if z.dtype == torch.float64 else 30
    for _ in range(steps):
        width = width / 2
        mass = _weights_at(z, low + width, eps).sum(dim, keepdim=True)
        low = torch.where(mass >= 1, low + width, low)
    return low


def _weights_at(z: Tensor, lam: Tensor, eps: Tensor) -> Tensor:
    """[1 + ε(z − λ)]₊^(1/ε), not normalised."""
    eps = _never_zero(eps)
    return (eps * (z - lam)).clamp_min_(-1.0).log1p_().div_(eps).exp_()


def entmax_backward(
    weights: Tensor, alpha: Tensor, grad: Tensor, dim: int = -1, need_alpha: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Compute the gradients of α-entmax from its output; they can be differentiated again.

    With w = p^(1−ε) on the support and ḡ = Σgw / Σw, dz = w (g − ḡ). The gradient of α (Correia et al. 2019,
    https://arxiv.org/abs/1909.00015, Proposition 1) is written as dα = Σ p r (g − ḡ) with
    r = −(e^s − 1 − s)/ε² and s = −ε log p ≥ 0, which avoids cancellation as ε → 0.

    Args:
        weights: output of the forward pass, any shape.
        alpha: as in the forward pass.
        grad: gradient of the loss with respect to ``weights``.

    Returns:
        The gradient of the scores, in the dtype of ``weights``, and the gradient of α, in α's shape and dtype
        (None unless ``need_alpha``).
    """
    dtype = working_dtype(weights.dtype)
    eps = (alpha - 1).to(dtype)
    p = weights.to(dtype)
    g = grad.to(dtype)
    support = p != 0  # true for NaN too, so that NaN propagates
    tiny = torch.finfo(dtype).tiny
    log_p = torch.log(torch.where(support, p, 1.0).clamp_min(tiny))  # 0 where p is 0, also for its derivative

    w = torch.where(support, torch.exp((1 - eps) * log_p), 0.0)
    total = w.sum(dim, keepdim=True).clamp_min(tiny)  # a fully masked row sums to 0
    centred = g - (g * w).sum(dim, keepdim=True) / total
    grad_scores = (w * centred).to(weights.dtype)
    if not need_alpha:
        return grad_scores, None

    s = -eps * log_p
    near = -p * log_p.square() * _phi2(s.clamp_max(1.0))
    far = -(w - p - p * s) / torch.where(s < 1, 1.0, eps).square()  # if s ≥ 1, then ε > 0
    p_r = torch.where(s < 1, near, far)
    grad_alpha = torch.where(support, p_r * centred, 0.0)
    return grad_scores, grad_alpha.sum_to_size(alpha.shape).to(alpha.dtype)


def _phi2(s: Tensor) -> Tensor:
    """(e^s − 1 − s)/s² for 0 ≤ s ≤ 1 by its power series, all of whose terms are positive."""
    terms = 20 if s.dtype == torch.float64 else 11
    phi = torch.ones_like(s)
    for k in range(terms, 2, -1):
        phi = phi * s / k + 1.0
    return phi / 2
