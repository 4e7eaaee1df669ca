"""Word alignment from context attention, in Pharaoh format, and its error rate."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from ..io import read_text, shown

Link = tuple[int, int]
"""Source word and target word, both counted from 0."""

_LINK = re.compile(r"([0-9]{1,9})([-?p])([0-9]{1,9})")


def word_weights(weights: Tensor, query_word: Tensor, key_word: Tensor) -> Tensor:
    """Attention weights between words, from those between subword pieces.

    The weights on the pieces of a source word are summed; those of the pieces of a target word are averaged.

    ``query_word`` (B, T) has the index of the target word of each query, and ``key_word`` (B, S) that of the
    source word of each key, −1 for none. The weights (B, H, T, S) become (B, H, target words, source words),
    0 where a sentence has fewer words.
    """
    queries = _membership(query_word).to(weights.dtype)  # (B, target words, T)
    keys = _membership(key_word).to(weights.dtype)  # (B, source words, S)
    queries = queries / queries.sum(-1, keepdim=True).clamp(min=1)
    return torch.einsum("bvt,bhts,bws->bhvw", queries, weights, keys)


def _membership(word: Tensor) -> Tensor:
    """Mask (B, words, T): true where a token is a piece of a word."""
    return word[:, None, :] == torch.arange(int(word.max()) + 1, device=word.device)[None, :, None]


def links(weights: Tensor) -> list[list[Link]]:
    """The links of sentences: each target word to the source word with the largest weight, or the first.

    A target word without weight on any source word, which is possible in sparse attention, has no link.
    ``weights``: (B, target words, source words), 0 where a sentence has fewer.
    """
    if not weights.numel():
        return [[] for _ in weights]
    largest, place = weights.max(-1)
    return [
        [(source, target) for target, (weight, source) in enumerate(zip(*row)) if weight > 0]
        for row in zip(largest.tolist(), place.tolist())
    ]


def pharaoh(found: list[Link]) -> str:
    """Links as ``source-target`` separated by spaces, ordered by target word."""
    return " ".join(f"{source}-{target}" for source, target in found)


class Gold:
    """A file of gold links, one line per sentence: ``i-j`` is sure; ``i?j`` or ``ipj`` is possible.

    ``i`` is a source word and ``j`` a target word, split at spaces and counted from 0; with ``one_based``
    from 1, with ``reversed_sides`` the other way round. ``sentences``: read only the first N lines.

    Raises:
        UserError: the file cannot be read or has an invalid link.
    """

    def __init__(
        self, path: str | Path, *, sentences: int | None = None, one_based=False, reversed_sides=False
    ):
        self.path = Path(path)
        lines = read_text(self.path, "the gold alignment", "utf-8-sig").removesuffix("\n").split("\n")
        self._first = 1 if one_based else 0
        self._reversed = reversed_sides
        self._lines = [self._parsed(number, line) for number, line in enumerate(lines[:sentences], start=1)]

    def __len__(self) -> int:
        return len(self._lines)

    def _parsed(self, number: int, line: str) -> tuple[frozenset[Link], frozenset[Link]]:
        sure, possible = set(), set()
        for word in line.split():
            match = _LINK.fullmatch(word)
            if not match:
                raise UserError(
                    f"{self.path}, line {number}: {shown(word)} is not a link; write i-j for a sure and i?j "
                    "for a possible link"
                )
            link = int(match.group(1)) - self._first, int(match.group(3)) - self._first
            if min(link) < 0:
                raise UserError(
                    f"{self.path}, line {number}: {shown(word)} is below 1, but --gold-from-1 is given"
                )
            link = link[::-1] if self._reversed else link
            possible.add(link)
            if match.group(2) == "-":
                sure.add(link)
        return frozenset(sure), frozenset(possible)

    def sentence(self, number: int, source: int, target: int) -> tuple[frozenset[Link], frozenset[Link]]:
        """Sure links and all links of sentence ``number`` (from 0) with the given numbers of words.

        Raises:
            UserError: a link is outside the sentence.
        """
        sure, possible = self._lines[number]
        for i, j in sorted(possible):
            if i >= source or j >= target:
                raise UserError(
                    f"{self.path}, line {number + 1}: the link of source word {i} and target word {j}, "
                    f"counted from 0, is outside the sentence of {source} and {target} words "
                    "(separated by spaces); see --gold-from-1, --gold-reversed and --subset"
                )
        return sure, possible


def told_bits(linked: Counter[tuple[Hashable, Hashable]]) -> float | None:
    """How many bits the source word linked with a target word tells of it, on average; None without any.

    This is the mean of log₂ p(t | s) / p(t) over all target words t. p(t) is their relative frequency, and
    p(t | s) = (n(s, t) − 1 + p(t)) / n(s) counts, instead of the link of t itself, one that is distributed as
    p(t). Good alignments link a word with its translations, and so tell more.

    Args:
        linked: the number of times that each source word, None for no link, goes with each target word.
    """
    sources: Counter[Hashable] = Counter()
    targets: Counter[Hashable] = Counter()
    for (source, target), number in linked.items():
        sources[source] += number
        targets[target] += number
    total = linked.total()
    bits = 0.0
    for (source, target), number in linked.items():
        p = targets[target] / total
        bits += number * math.log2((number - 1 + p) / (sources[source] * p))
    return bits / total if total else None


@dataclass
class ErrorRate:
    """Alignment error rate over sentences (Och and Ney 2003, section 4.1)."""

    links: int = 0
    sure: int = 0
    links_in_sure: int = 0
    links_in_possible: int = 0

    def add(self, found: list[Link], sure: frozenset[Link], possible: frozenset[Link]) -> None:
        """Add a sentence: links found, sure links, and possible links, which include the sure ones."""
        self.links += len(found)
        self.sure += len(sure)
        self.links_in_sure += len(sure.intersection(found))
        self.links_in_possible += len(possible.intersection(found))

    def scores(self) -> dict[str, float | None]:
        """``aer``, ``precision`` and ``recall`` of links A, sure S and possible P; None for 0/0.

        AER = 1 − (#(A∩S) + #(A∩P)) / (#A + #S), precision = #(A∩P) / #A, recall = #(A∩S) / #S.
        """

        correct, all_links = self.links_in_sure + self.links_in_possible, self.links + self.sure
        return {
            "aer": 1 - correct / all_links if all_links else None,
            "precision": self.links_in_possible / self.links if self.links else None,
            "recall": self.links_in_sure / self.sure if self.sure else None,
        }


def candidates(context: list[Tensor], latent: Tensor | None = None) -> Iterator[tuple[str, dict, Tensor]]:
    """The candidate alignments: each head, the mean of each layer's heads, the mean of all, and a latent one.

    Args:
        context: word weights of each layer, (B, H, target words, source words).
        latent: those of a latent alignment given the target words, (B, target words, source words).

    Yields:
        the name, such as ``layer1-head0``, ``layer1``, ``all`` or ``alignment``; ``{"layer": l, "head": h}``,
        with None for what is averaged over; and the weights (B, target words, source words).
    """
    for layer, weights in enumerate(context):
        for head in range(weights.size(1)):
            yield f"layer{layer}-head{head}", {"layer": layer, "head": head}, weights[:, head]
        yield f"layer{layer}", {"layer": layer, "head": None}, weights.mean(1)
    if context:
        mean = torch.stack([weights.mean(1) for weights in context]).mean(0)
        yield "all", {"layer": None, "head": None}, mean
    if latent is not None:
        yield "alignment", {"layer": None, "head": None, "latent": True}, latent
