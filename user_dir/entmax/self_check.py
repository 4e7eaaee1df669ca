"""Compares a GPU kernel with plain torch before anything relies on it.

A GPU, driver or compiler that a kernel was never run with can make it fail or, worse, return wrong numbers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Optional

import torch
from torch import Tensor

from . import reference

logger = logging.getLogger(__name__)

# What a kernel returned, what it should have returned, and the largest error as a share of the largest entry.
Comparison = tuple[str, Tensor, Tensor, float]

ALPHAS = (1.0, 1.25, 1.5, 2.0)  # one per head: each branch of the kernels, and both ends of the usual range


class SelfCheck:
    """Decides once per process, for each device and kind of call, whether a kernel can be trusted.

    Args:
        kernel: its name, for the log.
        instead: what the caller uses if the kernel fails, for the log.
        compare: runs the kernel on small problems: from a device and a kind to the results to compare.
    """

    def __init__(self, kernel: str, instead: str, compare: Callable[..., Iterator[Comparison]]):
        self.kernel, self._instead, self._compare = kernel, instead, compare
        self._verdicts: dict[Hashable, bool] = {}
        self._lock = threading.Lock()

    @property
    def failed(self) -> bool:
        """Whether a kernel was found wrong in this process."""
        return False in self._verdicts.values()

    def passes(self, device: torch.device, *kind: Hashable) -> Optional[bool]:
        """Whether the kernel computes what plain torch does; logs one warning if it does not.

        Returns None, and decides later, while a CUDA graph is being captured: the check allocates memory and
        waits for the device. The check runs in a thread of its own, where autograd, inference mode, autocast,
        saved-tensor hooks and ``torch.func`` are in their initial states whatever the caller does. It draws
        from a generator of its own.
        """
        key = (device, *kind)
        verdict = self._verdicts.get(key)
        if verdict is not None:
            return verdict
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return None
        with self._lock:
            if key not in self._verdicts:
                fault = self._fault(device, *kind)
                if fault is not None:
                    logger.warning(
                        "%s fails its self-check on %s for %s: %s; this process uses %s instead",
                        *(self.kernel, device, ", ".join(map(str, kind)), fault, self._instead),
                    )
                self._verdicts[key] = fault is None
            return self._verdicts[key]

    def _fault(self, device: torch.device, *kind: Hashable) -> Optional[str]:
        """What the kernel does wrong; None if it does nothing wrong."""
        found: list[Optional[str]] = []

        def check() -> None:
            try:
                with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                    faults = (difference(*each) for each in self._compare(device, *kind))
                    found.append(next((fault for fault in faults if fault is not None), None))
            except BaseException as error:  # a compiler raises anything
                found.append(f"it raised {type(error).__name__}: {' '.join(str(error).split())[:200]}")

        thread = threading.Thread(target=check, name="self-check", daemon=True)
        thread.start()
        thread.join()
        return found[0]


def difference(what: str, actual: Tensor, expected: Tensor, tolerance: float) -> Optional[str]:
    """How a result differs from the expected one by more than the tolerance; None if it does not."""
    actual = actual.detach().to("cpu", torch.float64)
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    if error <= tolerance:
        return None
    if error != error or error == float("inf"):
        return f"{what} has entries that are not finite"
    return f"{what} is off by {error:.2g} of the largest entry, more than {tolerance:g}"


# ------------------------------------------------------------------------------------ the row kernels

# The rounding of weights and gradients to the dtype, with room for the order of sums and a GPU's exp and log.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def _compare_rows(device: torch.device, dtype: torch.dtype) -> Iterator[Comparison]:
    from . import triton as kernels

    generator = torch.Generator().manual_seed(1)
    alpha = torch.tensor(ALPHAS, dtype=torch.float64).view(-1, 1, 1)
    for n in (19, 200, kernels.RESIDENT + 7):  # several rows to a program, one, and one tile by tile
        scores = (2 * torch.randn(4, 3, n, generator=generator, dtype=torch.float64)).to(dtype)
        scores[:, 0, n // 2 :] = float("-inf")
        grad = torch.randn(4, 3, n, generator=generator, dtype=torch.float64).to(dtype)
        weights = kernels.entmax_forward(scores.to(device), alpha.to(device))
        expected = reference.entmax_forward(scores.double(), alpha)
        yield f"the weights of {n} scores", weights, expected, _TOLERANCE[dtype]
        # Both backward passes start from the same weights.
        grads = kernels.entmax_backward(weights, alpha.to(device), grad.to(device))
        exact = reference.entmax_backward(weights.cpu().double(), alpha, grad.double())
        assert grads[1] is not None and exact[1] is not None
        yield f"the gradient of {n} scores", grads[0], exact[0], _TOLERANCE[dtype]
        yield f"the gradient of α with {n} scores", grads[1], exact[1], _TOLERANCE[dtype]


entmax_check = SelfCheck("the Triton kernel of α-entmax", "plain torch", _compare_rows)


def _compare_losses(device: torch.device, dtype: torch.dtype) -> Iterator[Comparison]:
    from . import loss_reference
    from . import loss_triton as kernels

    generator = torch.Generator().manual_seed(1)
    n = kernels.TILE + 7
    scores = (2 * torch.randn(6, n, generator=generator, dtype=torch.float64)).to(dtype)
    scores[0, n // 2 :] = float("-inf")
    target = torch.tensor([0, 1, n - 1, 5, -1, 2])
    grad = torch.randn(6, generator=generator, dtype=torch.float64).to(dtype)
    for alpha in ALPHAS[1:]:
        given = (alpha, 0.0, -1)
        *found, solutions = kernels.loss_forward(scores.to(device), target.to(device), *given)
        exact = loss_reference.loss_forward(scores.double(), target, *given)
        yield f"the loss at α = {alpha:g}", found[0], exact[0], _TOLERANCE[dtype]
        gradient = kernels.loss_backward(
            scores.to(device), target.to(device), *given, solutions, grad.to(device)
        )
        expected = loss_reference.loss_backward(scores.double(), target, *given, exact[2], grad.double())
        yield f"its gradient at α = {alpha:g}", gradient, expected, _TOLERANCE[dtype]


loss_check = SelfCheck("the Triton kernel of the α-entmax loss", "plain torch", _compare_losses)
