"""Word alignment of a whole split in one pass: a Pharaoh file per head and layer, and for their mean."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from ..errors import UserError
from ..io import atomic_write
from .alignment import ErrorRate, Gold, Link, candidates, links, pharaoh, told_bits, word_weights
from .capture import captured_attention
from .words import Pieces

QUERIES = {"output": "target", "input": "prev_output_tokens"}
"""The step whose attention aligns a target word: the one that predicts it, or the one that reads it (Chen et
al. 2020). The value is where a batch has the words of these steps."""


Words = tuple[list[tuple[int, ...]], list[tuple[int, ...]]]
"""The words of a sentence and its translation, as their tokens."""


@dataclass
class _Aligned:
    """What is written and counted of one candidate."""

    file: TextIO | None
    facts: dict
    rate: ErrorRate
    linked: Counter

    def add(self, found: list[Link], words: Words, sure: frozenset[Link], possible: frozenset[Link]) -> None:
        """Add a sentence."""
        if self.file is not None:
            self.file.write(pharaoh(found) + "\n")
        self.rate.add(found, sure, possible)
        (sources, targets), source_of = words, {target: source for source, target in found}
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
    """Align by each of :func:`~.alignment.candidates`; to ``folder``, if any, write ``NAME.pharaoh``.

    A file has a line per sentence.

    Batches, ``samples``, come in corpus order. ``source`` and ``target`` are the pieces of the languages,
    ``gold`` is an alignment to score against, and ``query`` a key of :data:`QUERIES`.

    Returns:
        ``sentences``, ``query`` and ``candidates``: for each its ``name``, ``layer``, ``head``, number of
        ``links``, share of target words with a link, ``aligned``, :func:`~.alignment.told_bits`, and, with
        ``gold``, ``aer``, ``precision`` and ``recall``.

    Raises:
        UserError: the model has no context attention, or the gold links do not fit.
    """
    if not model.attentions()["decoder_context"] and model.alignment is None:
        raise UserError("the model has no context attention to align with")
    found: dict[str, _Aligned] = {}
    sentences = words = 0
    with captured_attention(model, ["decoder_context"]) as captured, contextlib.ExitStack() as stack:
        for sample in samples:
            texts, candidates = _candidates(model, sample, captured, source, target, query)
            sizes = [tuple(map(len, each)) for each in texts]
            order = sample["id"].argsort().tolist()
            expected = [_gold_links(gold, sentences + i, *sizes[row]) for i, row in enumerate(order)]
            for name, facts, weights in candidates:
                if name not in found:
                    file = None
                    if folder is not None:
                        beside = stack.enter_context(atomic_write(folder / f"{name}.pharaoh"))
                        file = stack.enter_context(beside.open("w", encoding="utf-8"))
                    found[name] = _Aligned(file, facts, ErrorRate(), Counter())
                linked = links(weights)
                for row, sure_and_possible in zip(order, expected):
                    found[name].add(linked[row], texts[row], *sure_and_possible)
            sentences += len(order)
            words += sum(target_words for _, target_words in sizes)
        if gold is not None and len(gold) != sentences:
            raise UserError(f"{gold.path} has {len(gold)} lines for {sentences} sentences")
        for each in found.values():  # all are complete before the first gets its name
            if each.file is not None:
                each.file.close()
    rows = []
    for name, each in found.items():
        share = each.rate.links / words if words else None
        row = {"name": name, **each.facts, "links": each.rate.links, "aligned": share}
        row["bits"] = told_bits(each.linked)
        rows.append(row | (each.rate.scores() if gold is not None else {}))
    return {"sentences": sentences, "query": query, "candidates": rows}


def _candidates(
    model, sample: dict, captured: dict[str, list[Tensor]], source: Pieces, target: Pieces, query: str
) -> tuple[list[Words], Iterator[tuple[str, dict, Tensor]]]:
    """Run the model: the source and target words of each sentence, and the candidates."""
    model(**sample["net_input"])
    tokens = sample["target"] if query == "output" else sample["net_input"]["prev_output_tokens"]
    target_word = target.words(tokens, part_punctuation=False)
    source_tokens = sample["net_input"]["src_tokens"]
    source_word = source.words(source_tokens, part_punctuation=False)
    texts = zip(_words(source_tokens, source_word), _words(tokens, target_word))
    context = [word_weights(each.double(), target_word, source_word) for each in captured["decoder_context"]]
    latent = None
    if model.alignment is not None and query == "output":
        posterior = model.posterior_alignment(sample).double().unsqueeze(1)
        latent = word_weights(posterior, target_word, source_word).squeeze(1)
    return list(texts), candidates(context, latent)


def _words(tokens: Tensor, word: Tensor) -> Iterator[list[tuple[int, ...]]]:
    """The words of each sentence, as their tokens."""
    for row, numbers in zip(tokens.tolist(), word.tolist()):
        found: list[tuple[int, ...]] = [()] * (max(numbers) + 1)
        for token, number in zip(row, numbers):
            if number >= 0:
                found[number] += (token,)
        yield found


def _gold_links(gold: Gold | None, number: int, source: int, target: int):
    if gold is None:
        return frozenset(), frozenset()
    if number >= len(gold):
        raise UserError(f"{gold.path} has {len(gold)} lines, fewer than the sentences of the split")
    return gold.sentence(number, source, target)


def best(rows: list[dict], heads_only: bool) -> dict | None:
    """The row with the lowest ``aer``, among heads or among all candidates; None without gold."""
    scored = [
        row for row in rows if row.get("aer") is not None and (row["head"] is not None or not heads_only)
    ]
    return min(scored, key=lambda row: row["aer"], default=None)
