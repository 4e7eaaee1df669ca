"""The implementations to compare: ours and others of softmax, α-entmax and its special cases."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

import torch
from torch import Tensor

from ..entmax import entmax
from ..errors import UserError

PER_HEAD = "per head"
BACKENDS = ("reference", "native")  # values of ENTMAX_BACKEND


@dataclass(frozen=True)
class Contender:
    """An implementation of a normalizer, an attention or a loss, and the α it is run with."""

    name: str
    alpha: float | str  # a number in every head, or PER_HEAD
    function: Callable[..., Tensor]  # of scores and α; of queries, keys, values and α; of scores and targets
    peer: str | None = None  # the implementation of the same α to compare with
    backend: str | None = None  # which of our implementations of α-entmax
    square: bool = False  # an attention that requires equal numbers of queries and keys
    dtype: torch.dtype | None = None  # of an attention's inputs if it differs from the others'

    def chosen(self) -> AbstractContextManager:
        """While open, ``user_dir.entmax`` uses this implementation; not part of the timing."""
        if self.backend is None:
            return nullcontext()
        return mock.patch.dict(os.environ, ENTMAX_BACKEND=self.backend)


def entmax_package() -> ModuleType:
    """The ``entmax`` package, which benchmarks compare with; raises UserError if it is not installed."""
    try:
        import entmax as package
    except ImportError:
        raise UserError(
            "the benchmark compares with the entmax package; pip install -r requirements-dev.txt"
        ) from None
    return package


def contenders(device: torch.device) -> tuple[list[Contender], dict[str, str]]:
    """The implementations that run on ``device``, and the reasons why others do not.

    Raises:
        UserError: the ``entmax`` package is not installed.
    """
    peer = entmax_package()
    steps50, steps25 = "entmax_bisect, 50 steps", "entmax_bisect, 25 steps"
    found = [
        Contender("torch softmax", 1.0, lambda scores, alpha: torch.softmax(scores, -1)),
        Contender(steps50, PER_HEAD, peer.entmax_bisect),  # its default
        Contender(steps25, PER_HEAD, functools.partial(peer.entmax_bisect, n_iter=25), steps50),
        *_ours(PER_HEAD, steps50),
        Contender("entmax15", 1.5, lambda scores, alpha: peer.entmax15(scores, dim=-1)),
        *_ours(1.5, "entmax15"),
        Contender("sparsemax", 2.0, lambda scores, alpha: peer.sparsemax(scores, dim=-1)),
        *_ours(2.0, "sparsemax"),
    ]
    if device.type == "cuda":
        # AdaSplash does not support α per head.
        found.append(Contender("AdaSplash triton_entmax", 1.5, _adasplash, "entmax15"))
        found.append(Contender("AdaSplash triton_entmax", 2.0, _adasplash, "sparsemax"))
    left_out: dict[str, str] = {}
    for contender in found:
        if contender.name not in left_out and (reason := _why_not(contender, device)):
            left_out[contender.name] = reason
    return [contender for contender in found if contender.name not in left_out], left_out


def alphas(alpha: float | str, heads: int, device: torch.device) -> float | Tensor:
    """A contender's ``alpha`` as an argument: a number or, for ``PER_HEAD``, (H, 1, 1) from 1.05 to 1.95."""
    if alpha == PER_HEAD:
        return torch.linspace(1.05, 1.95, heads, device=device).view(-1, 1, 1)
    return alpha


def _ours(alpha: float | str, peer: str) -> list[Contender]:
    return [Contender(f"ours, {backend}", alpha, entmax, peer, backend) for backend in BACKENDS]


def _adasplash(scores: Tensor, alpha: float) -> Tensor:
    from adasplash import triton_entmax

    return triton_entmax(scores, alpha)


def _why_not(contender: Contender, device: torch.device) -> str | None:
    """The reason why a contender does not run here; other libraries may raise any exception."""
    scores = torch.zeros(1, 2, 3, 32, device=device, requires_grad=True)
    alpha = torch.full((2, 1, 1), 1.5, device=device) if contender.alpha == PER_HEAD else contender.alpha
    try:
        with contender.chosen():
            contender.function(scores, alpha).sum().backward()
    except (Exception, SystemExit) as error:
        return failure(error)
    return None


def failure(error: BaseException) -> str:
    """An exception of another library in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
