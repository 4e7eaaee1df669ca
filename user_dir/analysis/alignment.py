"""Word alignment from context attention: of a whole split, as Pharaoh files, with its error rate."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from ..files import read_text, shown, write_json, write_text
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


def read_gold(
    path: str | Path, *, sentences: int | None = None, one_based=False, reversed_sides=False
) -> list[tuple[frozenset[Link], frozenset[Link]]]:
    """The sure links and all links of each line of a gold file: ``i-j`` is sure; ``i?j``, ``ipj`` possible.

    ``i`` is a source word and ``j`` a target word, split at spaces and counted from 0; with ``one_based``
    from 1, with ``reversed_sides`` the other way round. ``sentences``: read only the first N lines.

    Raises:
        UserError: the file cannot be read or has an invalid link.
    """
    first, gold = int(one_based), []
    for number, line in enumerate(read_text(path, "the gold alignment").splitlines()[:sentences], start=1):
        sure, possible = set(), set()
        for word in line.split():
            match = _LINK.fullmatch(word)
            link = match and (int(match[1]) - first, int(match[3]) - first)
            if not match or min(link) < 0:
                what = f"a link i-j or i?j that counts from {first}"
                raise UserError(f"{path}, line {number}: {shown(word)} is not {what}")
            link = link[::-1] if reversed_sides else link
            possible.add(link)
            if match[2] == "-":
                sure.add(link)
        gold.append((frozenset(sure), frozenset(possible)))
    return gold


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


class Tally:
    """Links of a candidate over sentences: as Pharaoh lines, and counted."""

    def __init__(self):
        self.lines: list[str] = []
        self.linked: Counter[tuple[Hashable, Hashable]] = Counter()  # see ``told_bits``
        self.links = self.sure = self.links_in_sure = self.links_in_possible = 0

    def add(
        self, sentence: list[Link], words: Words, sure: frozenset[Link], possible: frozenset[Link]
    ) -> None:
        """Add a sentence: its links, words, sure links, and possible links, which include the sure ones."""
        self.lines.append(pharaoh(sentence))
        (sources, targets), source_of = words, {target: source for source, target in sentence}
        for target, word in enumerate(targets):
            self.linked[sources[source_of[target]] if target in source_of else None, word] += 1
        self.links += len(sentence)
        self.sure += len(sure)
        self.links_in_sure += len(sure.intersection(sentence))
        self.links_in_possible += len(possible.intersection(sentence))

    def error_rate(self) -> dict[str, float | None]:
        """``aer``, ``precision`` and ``recall`` of links A, sure S and possible P; None for 0/0.

        AER = 1 − (#(A∩S) + #(A∩P)) / (#A + #S), precision = #(A∩P) / #A, recall = #(A∩S) / #S (Och and Ney
        2003, section 4.1).
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


@torch.no_grad()
def align_split(
    model,
    samples: Iterable[dict],
    source: Pieces,
    target: Pieces,
    folder: Path | None = None,
    gold: Sequence[tuple[frozenset[Link], frozenset[Link]]] | None = None,
    query: str = "output",
) -> dict:
    """Align by each of :func:`candidates`; to ``folder``, if any, write ``NAME.pharaoh``, a line a sentence.

    Batches, ``samples``, come in corpus order. ``source`` and ``target`` are the pieces of the languages,
    ``gold`` is of :func:`read_gold`, and ``query`` is of :data:`QUERIES`.

    Returns:
        ``sentences``, ``query`` and ``candidates``: for each its ``name``, ``layer``, ``head``, number of
        ``links``, share of target words with a link, ``aligned``, ``bits`` (:func:`told_bits`), and, with
        ``gold``, ``aer``, ``precision`` and ``recall``.

    Raises:
        UserError: the model has no context attention, or the gold links do not fit.
    """
    if not model.attentions()["decoder_context"] and model.alignment is None:
        raise UserError("the model has no context attention to align with")
    tallies: dict[str, tuple[dict, Tally]] = {}
    sentences = words = 0
    for sample in samples:
        read, read_by = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        written = sample["target"] if query == "output" else read_by
        source_word = source.words(read, part_punctuation=False)
        target_word = target.words(written, part_punctuation=False)
        texts = list(zip(_words(read, source_word), _words(written, target_word)))
        order = sample["id"].argsort().tolist()
        expected = [(frozenset(), frozenset())] * len(order)
        if gold is not None:
            expected = gold[sentences : sentences + len(order)]
            for number, (row, (_, possible)) in enumerate(zip(order, expected), start=sentences + 1):
                if any(i >= len(texts[row][0]) or j >= len(texts[row][1]) for i, j in possible):
                    raise UserError(f"line {number} of the gold alignment has a link outside the sentence")
        for name, facts, weights in run_candidates(model, sample, target_word, source_word, query):
            _, tally = tallies.setdefault(name, (facts, Tally()))
            linked = links(weights)
            for row, sure_and_possible in zip(order, expected):
                tally.add(linked[row], texts[row], *sure_and_possible)
        sentences += len(order)
        words += sum(len(target_words) for _, target_words in texts)
    if gold is not None and len(gold) != sentences:
        raise UserError(f"the gold alignment has {len(gold)} lines for {sentences} sentences")
    rows = []
    for name, (facts, tally) in tallies.items():
        if folder is not None:
            write_text(folder / f"{name}.pharaoh", "".join(line + "\n" for line in tally.lines))
        row = {"name": name, **facts, "links": tally.links, "aligned": tally.links / words if words else None}
        row["bits"] = told_bits(tally.linked)
        rows.append(row | (tally.error_rate() if gold is not None else {}))
    return {"sentences": sentences, "query": query, "candidates": rows}


def _words(tokens: Tensor, word: Tensor) -> Iterator[list[tuple[int, ...]]]:
    """The words of each sentence, as their tokens."""
    for row, numbers in zip(tokens.tolist(), word.tolist()):
        words: list[tuple[int, ...]] = [()] * (max(numbers) + 1)
        for token, number in zip(row, numbers):
            if number >= 0:
                words[number] += (token,)
        yield words


def write_alignment(split: Split, folder: Path, gold: Sequence | None = None, query: str = "output") -> dict:
    """Align the words of a split; writes a Pharaoh file for each candidate, and ``alignment.json``.

    See :func:`align_split`. Returns the content of ``alignment.json``: with ``gold`` also ``best_head`` and
    ``best``, those of the least error rate.
    """
    samples = split.samples(in_order=True)
    aligned = align_split(split.model, samples, *split.pieces(), folder, gold, query)
    report = rounded({**split.facts, **aligned})
    scored = [row for row in report["candidates"] if row.get("aer") is not None]
    if gold is not None:
        heads = [row for row in scored if row["head"] is not None]
        report["best_head"] = min(heads, key=lambda row: row["aer"], default=None)
        report["best"] = min(scored, key=lambda row: row["aer"], default=None)
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
