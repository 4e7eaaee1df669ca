"""The kernels of ``cpu_steps.cpp``: what a step of translation on a CPU does besides products of matrices."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.build import DTYPES, INTEGER, POINTER, NativeKernels

_ATTEND = [POINTER] * 8 + [INTEGER, POINTER]
_ADD_NORM = [INTEGER] * 2 + [POINTER] * 4 + [ctypes.c_double, POINTER]
_BEST = [INTEGER] * 4 + [POINTER] * 3 + [INTEGER] * 3 + [ctypes.c_double] * 2 + [INTEGER] + [POINTER] * 3


def unavailable(dtype: torch.dtype) -> str | None:
    """Why the kernels are not available for a dtype; None if they are."""
    if dtype not in DTYPES:
        return f"parameters are {dtype}, neither float32 nor float64"
    if has_native("cpu") and kernels.available():
        return None
    return "it needs a C++ compiler, and ENTMAX_BACKEND not to be reference"


kernels = NativeKernels(
    Path(__file__).with_suffix(".cpp"), attend=(None, _ATTEND), add_norm=(None, _ADD_NORM), best=(None, _BEST)
)


@dataclass
class Cache:
    """Where the keys and values of queries lie.

    The j-th key of a query is row ``places[source, j]`` of slab j, or of the only slab.

    Attributes:
        slabs: tensors (rows, 2·C) of keys and values side by side: one for each j, or a single one.
        places: int32 (sources, at least ``most``).
        counts: int32 (sources,), the number of keys; None if it is ``most`` for all.
        sources: int32 (queries,), the row of ``places`` of each query; None if query i has row i.
        most: the greatest number of keys.
        single: there is one slab for all j.
    """

    slabs: Sequence[Tensor]
    places: Tensor
    counts: Tensor | None
    sources: Tensor | None
    most: int
    single: bool

    def keys(self) -> Tensor:
        """How many keys each query sees: int32 (queries, 1), or (1, 1) if it is the same for all."""
        if self.counts is None:
            return torch.tensor([[self.most]], dtype=torch.int32)
        return (self.counts if self.sources is None else self.counts[self.sources])[:, None]


def attend(query: Tensor, cache: Cache, alpha: Tensor) -> Tensor:
    """α-entmax attention of single queries to cached keys.

    Args:
        query: (R, H·D), heads side by side.
        cache: where keys and values lie.
        alpha: float64 (H,).

    Returns:
        (R, H·D). A query without keys gets zeros; one with a score that is NaN gets NaN.
    """
    rows, channels = query.shape
    heads = alpha.numel()
    out = torch.empty_like(query)
    if not rows:
        return out
    keys = [slab.data_ptr() for slab in cache.slabs]
    values = [at + channels * query.element_size() for at in keys]
    pointers = POINTER * len(keys)
    sizes = (rows, heads, channels // heads, cache.most, 0 if cache.single else 1, 2 * channels)
    sizes += (cache.places.stride(0), query.stride(0))
    kernels["attend", query.dtype](
        (INTEGER * len(sizes))(*sizes),
        query.data_ptr(),
        pointers(*keys),
        pointers(*values),
        cache.places.data_ptr(),
        None if cache.counts is None else cache.counts.data_ptr(),
        None if cache.sources is None else cache.sources.data_ptr(),
        alpha.data_ptr(),
        heads,
        out.data_ptr(),
    )
    return out


def add_norm(x: Tensor, update: Tensor | None, norm: torch.nn.LayerNorm) -> Tensor:
    """LayerNorm(x + update), both (…, C); x becomes the sum, in place."""
    out, width = torch.empty_like(x), x.size(-1)
    kernels["add_norm", x.dtype](
        x.numel() // width,
        width,
        x.data_ptr(),
        None if update is None else update.data_ptr(),
        norm.weight.data_ptr(),
        norm.bias.data_ptr(),
        norm.eps,
        out.data_ptr(),
    )
    return out


@dataclass(frozen=True)
class Rules:
    """Which symbols may follow.

    Attributes:
        banned: int64, symbols that may not.
        unknown: the symbol whose log-probability is lowered by ``penalty``.
        penalty: see ``unknown``.
        temperature: logits are divided by it.
        sparse: there are probabilities, many of them 0, instead of logits; they have their temperature.
    """

    banned: Tensor
    unknown: int
    penalty: float
    temperature: float
    sparse: bool = False


def best(
    logits: Tensor, scores: Tensor, wanted: int, rules: Rules, only: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of the hypotheses of each sentence, in descending order of score.

    Args:
        logits: (B, K, V), of K hypotheses per sentence, or probabilities if so by the rules; changed by the
            call.
        scores: (B, K), log-probabilities of the hypotheses.
        wanted: N, the number of continuations per sentence.
        rules: what may follow.
        only: the one symbol that may follow; None for all.

    Returns:
        scores (B, N): log-probabilities with the new symbol; symbols (B, N); hypotheses (B, N), 0 … K − 1.
        Where there are fewer continuations, and after a hypothesis with a NaN, scores are −∞.
    """
    batch, beams, symbols = logits.shape
    found = scores.new_full((batch, wanted), -torch.inf)
    which, of = (torch.zeros(batch, wanted, dtype=torch.int64) for _ in range(2))
    kernels["best", logits.dtype](
        batch,
        beams,
        symbols,
        wanted,
        logits.data_ptr(),
        scores.data_ptr(),
        rules.banned.data_ptr(),
        rules.banned.numel(),
        -1 if only is None else only,
        rules.unknown,
        rules.penalty,
        rules.temperature,
        int(rules.sparse),
        found.data_ptr(),
        which.data_ptr(),
        of.data_ptr(),
    )
    return found, which, of
