"""What a step of translation on a CPU does to tensors, by ``cpu_steps.cpp``; products in ``products.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..cpp.build import INTEGER, POINTER, addresses
from .kernels import kernels


@dataclass
class Cache:
    """Where the keys and values of queries lie.

    The j-th key of a query is row ``places[source, j]`` of slab j, or of the only slab.

    Attributes:
        slabs: tensors (rows, 2·C) of keys and values side by side, one for each j or a single one; their
            rows may be parts of longer ones, all of one length.
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

    def gathered(self) -> tuple[Tensor, Tensor | None]:
        """Keys and values (B, most, 2·C) of each source, in the order of the queries; where are none."""
        if not self.single:
            return torch.stack([slab[self.places[:, j]] for j, slab in enumerate(self.slabs)], dim=1), None
        sources, (slab,) = self.sources.unique_consecutive(), self.slabs
        absent = torch.arange(self.most) >= self.counts[sources][:, None]
        return slab[self.places[sources].masked_fill(absent, 0)], absent


def attend(
    query: Tensor, cache: Cache, alpha: Tensor, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """α-entmax attention of single queries to cached keys.

    Args:
        query: (R, H·D), heads side by side.
        cache: where keys and values lie.
        alpha: float64 (H,).
        need_weights: also return the weights.

    Returns:
        (R, H·D), and the weights (R, H, most keys) or None. A query without keys gets zeros; one with a score
        that is NaN gets NaN.
    """
    rows, channels = query.shape
    heads = alpha.numel()
    out = torch.empty_like(query)
    weights = query.new_zeros(rows, heads, cache.most) if need_weights else None
    if not rows:
        return out, weights
    keys = [slab.data_ptr() for slab in cache.slabs]
    values = [at + channels * query.element_size() for at in keys]
    pointers = POINTER * len(keys)
    sizes = (rows, heads, channels // heads, cache.most, 0 if cache.single else 1, cache.slabs[0].stride(0))
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
        out.data_ptr(),
        None if weights is None else weights.data_ptr(),
    )
    return out, weights


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
        sparse: there are probabilities, many of them 0, instead of logits.
        only: int64 (R,), the one symbol that may follow a hypothesis, even if banned; −1 for all.
        repeated: int64, symbols that may not follow single hypotheses, in the order of these.
        starts: int64 (R + 1,), where in ``repeated`` those of each hypothesis start, and the last end.
    """

    banned: Tensor
    unknown: int
    penalty: float
    sparse: bool = False
    only: Tensor | None = None
    repeated: Tensor | None = None
    starts: Tensor | None = None

    def of(self, rows: slice) -> Rules:
        """The rules of these hypotheses."""
        if self.only is None and self.starts is None:
            return self
        only = None if self.only is None else self.only[rows]
        starts = None if self.starts is None else self.starts[rows.start : rows.stop + 1]
        return replace(self, only=only, starts=starts)


def best(logits: Tensor, scores: Tensor, wanted: int, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of the hypotheses of each sentence, in descending order of score.

    Args:
        logits: (B, K, V), of K hypotheses per sentence, or probabilities if so by the rules; changed by the
            call.
        scores: (B, K), log-probabilities of the hypotheses.
        wanted: N, the number of continuations per sentence.
        rules: what may follow.

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
        *addresses(rules.only, rules.repeated, rules.starts),
        rules.unknown,
        rules.penalty,
        int(rules.sparse),
        *addresses(found, which, of),
    )
    return found, which, of
