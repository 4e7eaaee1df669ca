"""Reference implementation of α-entmax and its loss in plain torch, for any floating dtype and device.

Notation: z is a row of scores, ε = α − 1 and p = α-entmax(z), that is

    p_i = [1 + ε (z_i − λ)]₊^(1/ε),  where λ is the unique threshold with Σ p_i = 1

(Peters et al. 2019, https://arxiv.org/abs/1905.05702). In this parametrisation the limit ε → 0 is regular:
p becomes softmax and λ the logsumexp. α is a tensor that broadcasts against the scores with size 1 at
``dim``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .checks import check_range


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: float64 for float64, float32 for every other dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def entmax_forward(scores: Tensor, alpha: Tensor, dim: int = -1) -> Tensor:
    """Compute the weights α-entmax(scores) along ``dim``, without autograd.

    Args:
        scores: any shape; a score of −inf gets weight 0.
        alpha: ≥ 1 (checked), broadcasts against ``scores``, size 1 at ``dim``.

    Returns:
        Weights of the shape and dtype of ``scores``; rows that are all −inf are all zeros.
    """
    check_range(alpha)
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
    # As a divisor, 0 is replaced by a normal float32 far below 1.2e-7, the smallest nonzero α − 1: it is so
    # small that results equal those of the limit ε → 0.
    divisor = eps.clamp_min(1e-20)
    lam = _by_bisection(z, divisor, dim) if bool((eps > 1).any()) else _by_newton(z, divisor, dim)
    weights = _weights_at(z, lam, divisor)
    weights = weights / weights.sum(dim, keepdim=True)
    if bool((eps == 0).any()):
        weights = torch.where(eps == 0, torch.softmax(z, dim), weights)
    if some_empty:
        weights = weights.masked_fill(empty, 0.0)
    return weights.to(scores.dtype)


def _by_newton(z: Tensor, eps: Tensor, dim: int) -> Tensor:
    """λ by Newton's method on ‖u‖ = 1 with u = [1 + ε(z − λ)]₊, for 0 < ε ≤ 1.

    ‖u‖ = (Σ u^(1/ε))^ε is a norm, hence convex in λ, and decreasing. Starting from λ = max z = 0, where
    ‖u‖ ≥ 1, no step overshoots the root, so no bracket is needed.
    """
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


def _by_bisection(z: Tensor, eps: Tensor, dim: int) -> Tensor:
    """λ for any ε > 0 by bisection of [0, (1 − n^−ε)/ε]; slow, but valid for ε > 1, where ‖u‖ is no norm."""
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


# --------------------------------------------------------------------------------------------- the loss
#
# With p = α-entmax(z), the loss of the scores z of a token y is the Fenchel-Young loss of Tsallis' entropy H,
#
#     L(z, y) = (p − e_y)ᵀ z + H(p),  H(p) = (1 − Σ p^α) / (α (α − 1)),  ∂L/∂z = p − e_y
#
# (Peters et al. 2019, https://arxiv.org/abs/1905.05702, equations 8 and 11; Blondel et al. 2020,
# https://arxiv.org/abs/1901.02324). For α → 1 it is cross-entropy. Label smoothing s adds s (z_y − mean z),
# as for the smoothed target (1 − s) e_y + s/n without its constant entropy (Peters and Martins 2021,
# https://arxiv.org/abs/2103.10291).


class LossSettings(NamedTuple):
    """Settings of the loss; see :func:`user_dir.entmax.entmax_loss`."""

    alpha: float  # above 1, up to 2
    label_smoothing: float
    ignore_index: int


def new_loss_results(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Empty results for a kernel to fill: losses, sizes of the support, and (max z, λ, Σ p), by row."""
    rows = scores.size(0)
    return scores.new_empty(rows), torch.empty_like(target), scores.new_empty(rows, 3)


def loss_forward(scores: Tensor, target: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Losses (rows,), sizes of the support (rows,), and what a kernel's backward pass needs: here nothing.

    A row with a score of NaN or +∞ has the loss NaN; a row that is all −∞ has the loss ∞ and no support.

    Args:
        scores: (rows, n), float32 or float64.
        target: (rows,), from 0 to n − 1 or ``ignore_index``.
    """
    alpha, label_smoothing, ignore_index = settings
    eps = alpha - 1
    ignored = target == ignore_index
    top = scores.amax(-1, keepdim=True)
    empty = top == float("-inf")
    z = scores - top.masked_fill(empty, 0.0)
    own = z.gather(-1, target.masked_fill(ignored, 0)[:, None]).squeeze(-1)
    weights = entmax_forward(z, torch.tensor(alpha, dtype=torch.float64, device=z.device))
    there = weights != 0  # true for NaN too, so that NaN propagates
    log_p = torch.where(there, weights, 1.0).log()
    entropy = -(weights * torch.expm1(eps * log_p)).sum(-1) / (alpha * eps)
    losses = torch.where(there, weights * z, 0.0).sum(-1) + entropy - own
    if label_smoothing:
        losses = losses + label_smoothing * (own - z.mean(-1))
    losses = losses.masked_fill(empty.squeeze(-1), float("inf")).masked_fill(ignored, 0.0)
    # p is NaN throughout if a score is
    support = (weights > 0).sum(-1).masked_fill(ignored, 0)
    return losses, support, scores.new_zeros(len(scores), 3)


def loss_backward(
    scores: Tensor, target: Tensor, settings: LossSettings, solutions: Tensor, grad: Tensor
) -> Tensor:
    """The gradient of the scores from that of the losses, (rows,)."""
    alpha = torch.tensor(settings.alpha, dtype=torch.float64, device=scores.device)
    return gradient_of_scores(entmax_forward(scores, alpha), target, settings, grad)


def gradient_of_scores(weights: Tensor, target: Tensor, settings: LossSettings, grad: Tensor) -> Tensor:
    """grad · (p − (1 − s) e_y − s/n) from the weights p, differentiable in p."""
    _, label_smoothing, ignore_index = settings
    ignored = target == ignore_index
    empty = (weights == 0).all(-1)
    smoothed = weights - label_smoothing / weights.size(-1)
    own = torch.zeros_like(weights).scatter(-1, target.masked_fill(ignored, 0)[:, None], 1 - label_smoothing)
    return (grad[:, None] * (smoothed - own)).masked_fill((ignored | empty)[:, None], 0.0)
