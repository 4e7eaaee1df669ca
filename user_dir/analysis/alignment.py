"""Word alignment from context attention: of a whole split, as Pharaoh files, with its error rate."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from ..errors import UserError
from ..files import atomic_write, read_text, shown, write_json
from .capture import Split, captured_attention
from .results import rounded
from .words import Pieces

Link = tuple[int, int]
"""Source word and target word, both counted from 0."""
Words = tuple[list[tuple[int, ...]], list[tuple[int, ...]]]
"""The words of a sentence and its translation, as their tokens."""
QUERIES = ("output", "input")
"""The step whose attention aligns a target word: the one that predicts it, or the one that reads it (Chen et
al. 2020)."""

_LINK = re.compile(r"(\d+)([-?p])(\d+)", re.ASCII)


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


def pharaoh(sentence: list[Link]) -> str:
    """Links as ``source-target`` separated by spaces, ordered by target word."""
    return " ".join(f"{source}-{target}" for source, target in sentence)


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
        lines = read_text(self.path, "the gold alignment").splitlines()[:sentences]
        self._first, self._reversed = int(one_based), reversed_sides
        self._lines = [self._parsed(number, line) for number, line in enumerate(lines, start=1)]

    def __len__(self) -> int:
        return len(self._lines)

    def _parsed(self, number: int, line: str) -> tuple[frozenset[Link], frozenset[Link]]:
        sure, possible = set(), set()
        for word in line.split():
            match = _LINK.fullmatch(word)
            link = match and (int(match[1]) - self._first, int(match[3]) - self._first)
            if not match or min(link) < 0:
                what = f"a link i-j or i?j that counts from {self._first}"
                raise UserError(f"{self.path}, line {number}: {shown(word)} is not {what}")
            link = link[::-1] if self._reversed else link
            possible.add(link)
            if match[2] == "-":
                sure.add(link)
        return frozenset(sure), frozenset(possible)

    def sentence(self, number: int, source: int, target: int) -> tuple[frozenset[Link], frozenset[Link]]:
        """Sure links and all links of sentence ``number`` (from 0) with the given numbers of words.

        Raises:
            UserError: there is no such line, or a link is outside the sentence.
        """
        if number >= len(self):
            raise UserError(f"{self.path} has {len(self)} lines, fewer than the sentences of the split")
        sure, possible = self._lines[number]
        for i, j in sorted(possible):
            if i >= source or j >= target:
                raise UserError(
                    f"{self.path}, line {number + 1}: the link of source word {i} and target word {j}, from "
                    f"0, is outside the sentence of {source} and {target} words"
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

    def add(self, sentence: list[Link], sure: frozenset[Link], possible: frozenset[Link]) -> None:
        """Add the links of a sentence, its sure links, and possible links, which include the sure ones."""
        self.links += len(sentence)
        self.sure += len(sure)
        self.links_in_sure += len(sure.intersection(sentence))
        self.links_in_possible += len(possible.intersection(sentence))

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


def run_candidates(
    model, sample: dict, target_word: Tensor, source_word: Tensor, query: str
) -> Iterator[tuple[str, dict, Tensor]]:
    """Run a model on a batch: its :func:`candidates`, for the words of queries (B, T) and keys (B, S).

    The latent alignment is one of them if ``query`` is ``output``.
    """
    with captured_attention(model, ["decoder_context"]) as captured:
        model(**sample["net_input"])
    context = [word_weights(each.double(), target_word, source_word) for each in captured["decoder_context"]]
    latent = None
    if model.alignment is not None and query == "output":
        posterior = model.posterior_alignment(sample).double().unsqueeze(1)
        latent = word_weights(posterior, target_word, source_word).squeeze(1)
    return candidates(context, latent)


@dataclass
class _Aligned:
    """What is written and counted of one candidate."""

    facts: dict
    file: TextIO | None
    rate: ErrorRate = field(default_factory=ErrorRate)
    linked: Counter = field(default_factory=Counter)

    def add(
        self, sentence: list[Link], words: Words, sure: frozenset[Link], possible: frozenset[Link]
    ) -> None:
        """Add a sentence."""
        if self.file is not None:
            self.file.write(pharaoh(sentence) + "\n")
        self.rate.add(sentence, sure, possible)
        (sources, targets), source_of = words, {target: source for source, target in sentence}
        for target, word in enumerate(targets):
            source = source_of.get(target)
            self.linked[None if source is None else sources[source], word] += 1


@torch.no_grad()
def align_split(
    model,
    samples: Iterable[dict],
    source: Pieces,
    target: Pieces,
    folder: Path | None = None,
    gold: Gold | None = None,
    query: str = "output",
) -> dict:
    """Align by each of :func:`candidates`; to ``folder``, if any, write ``NAME.pharaoh``, a line a sentence.

    Batches, ``samples``, come in corpus order. ``source`` and ``target`` are the pieces of the languages,
    ``gold`` is an alignment to score against, and ``query`` is of :data:`QUERIES`.

    Returns:
        ``sentences``, ``query`` and ``candidates``: for each its ``name``, ``layer``, ``head``, number of
        ``links``, share of target words with a link, ``aligned``, ``bits`` (:func:`told_bits`), and, with
        ``gold``, ``aer``, ``precision`` and ``recall``.

    Raises:
        UserError: the model has no context attention, or the gold links do not fit.
    """
    if not model.attentions()["decoder_context"] and model.alignment is None:
        raise UserError("the model has no context attention to align with")
    aligned: dict[str, _Aligned] = {}
    sentences = words = 0
    with contextlib.ExitStack() as stack:
        for sample in samples:
            read, read_by = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
            written = sample["target"] if query == "output" else read_by
            source_word, target_word = (
                pieces.words(tokens, part_punctuation=False)
                for pieces, tokens in ((source, read), (target, written))
            )
            texts = list(zip(_words(read, source_word), _words(written, target_word)))
            sizes = [tuple(map(len, sides)) for sides in texts]
            order = sample["id"].argsort().tolist()
            none = frozenset(), frozenset()
            expected = [
                gold.sentence(sentences + i, *sizes[row]) if gold else none for i, row in enumerate(order)
            ]
            for name, facts, weights in run_candidates(model, sample, target_word, source_word, query):
                if name not in aligned:
                    file = None
                    if folder is not None:
                        beside = stack.enter_context(atomic_write(folder / f"{name}.pharaoh"))
                        file = stack.enter_context(beside.open("w", encoding="utf-8"))
                    aligned[name] = _Aligned(facts, file)
                linked = links(weights)
                for row, sure_and_possible in zip(order, expected):
                    aligned[name].add(linked[row], texts[row], *sure_and_possible)
            sentences += len(order)
            words += sum(target_words for _, target_words in sizes)
        if gold is not None and len(gold) != sentences:
            raise UserError(f"{gold.path} has {len(gold)} lines for {sentences} sentences")
    rows = []
    for name, candidate in aligned.items():
        count = candidate.rate.links
        row = {"name": name, **candidate.facts, "links": count, "aligned": count / words if words else None}
        row["bits"] = told_bits(candidate.linked)
        rows.append(row | (candidate.rate.scores() if gold is not None else {}))
    return {"sentences": sentences, "query": query, "candidates": rows}


def _words(tokens: Tensor, word: Tensor) -> Iterator[list[tuple[int, ...]]]:
    """The words of each sentence, as their tokens."""
    for row, numbers in zip(tokens.tolist(), word.tolist()):
        words: list[tuple[int, ...]] = [()] * (max(numbers) + 1)
        for token, number in zip(row, numbers):
            if number >= 0:
                words[number] += (token,)
        yield words


def best(rows: list[dict], heads_only: bool) -> dict | None:
    """The row with the lowest ``aer``, among heads or among all candidates; None without gold."""
    scored = [
        row for row in rows if row.get("aer") is not None and (row["head"] is not None or not heads_only)
    ]
    return min(scored, key=lambda row: row["aer"], default=None)


def write_alignment(
    split: Split, folder: Path, gold: Gold | None = None, query: str = "output", scheme: str | None = None
) -> dict:
    """Align the words of a split; writes a Pharaoh file for each candidate, and ``alignment.json``.

    See :func:`align_split`; ``scheme`` is of :data:`~.words.SCHEMES`. Returns the content of
    ``alignment.json``: with ``gold`` also ``best_head`` and ``best``, those of the least error rate.
    """
    samples = split.samples(in_order=True)
    aligned = align_split(split.model, samples, *split.pieces(scheme), folder, gold, query)
    report = rounded({**split.facts, **aligned})
    if gold is not None:
        report["best_head"], report["best"] = (best(report["candidates"], only) for only in (True, False))
    write_json(folder / "alignment.json", report)
    return report


def alignment_summary(rows: list[dict]) -> str:
    """Links of each candidate of a word alignment, with error rates if there are gold links, as text."""
    scored = "aer" in rows[0]
    heading = "     AER  precision  recall" if scored else ""
    lines = [f"{'':<14}{'links':>8}{'aligned':>9}{'bits':>7}{heading}"]
    for row in rows:
        line = f"{row['name']:<14}{row['links']:>8}{row['aligned']:>9.3f}{row['bits']:>7.2f}"
        if scored:
            scores = [row[name] for name in ("aer", "precision", "recall")]
            aer, precision, recall = ["      -" if each is None else f"{each:7.3f}" for each in scores]
            line += f" {aer}    {precision} {recall}"
        lines.append(line)
    return "\n".join(lines)
