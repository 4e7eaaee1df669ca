"""Word alignment of a whole split in one pass: a Pharaoh file per head and layer, and for their mean."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from pathlib import Path

import torch

from ..errors import UserError
from ..io import atomic_write
from .alignment import (
    ErrorRate,
    Gold,
    candidate_name,
    candidates,
    latent_candidate,
    links,
    pharaoh,
    word_weights,
)
from .capture import captured_attention
from .words import Pieces

QUERIES = {"output": "target", "input": "prev_output_tokens"}
"""The step whose attention aligns a target word: the one that predicts it, or the one that reads it (Chen et
al. 2020). The value is where a batch has the words of these steps."""


@torch.no_grad()
def align_split(
    model,
    samples: Iterable[dict],
    source: Pieces,
    target: Pieces,
    folder: Path,
    gold: Gold | None = None,
    query: str = "output",
) -> dict:
    """Write ``NAME.pharaoh`` to ``folder`` for each of :func:`~.alignment.candidates`, a line per sentence.

    A latent alignment is one more candidate, ``alignment``: its posterior given the target words.

    Args:
        model: from :func:`~.capture.load_model`.
        samples: batches in fairseq's form, in corpus order.
        source: the pieces of the source language.
        target: the pieces of the target language.
        folder: destination.
        gold: gold alignment to score against.
        query: a key of :data:`QUERIES`.

    Returns:
        ``sentences``, ``query`` and ``candidates``: for each its ``name``, ``layer``, ``head``, number of
        ``links``, share of target words with a link, ``aligned``, and, with ``gold``, ``aer``, ``precision``
        and ``recall``.

    Raises:
        UserError: the model has no context attention, or the gold links do not fit.
    """
    if not model.attentions()["decoder_context"] and model.alignment is None:
        raise UserError("the model has no context attention to align with")
    files, rates, rows, words = {}, {}, {}, 0
    sentences = 0
    with captured_attention(model) as captured, contextlib.ExitStack() as stack:
        for sample in samples:
            model(**sample["net_input"])
            tokens = sample["target"] if query == "output" else sample["net_input"]["prev_output_tokens"]
            target_word = target.words(tokens, part_punctuation=False)
            source_word = source.words(sample["net_input"]["src_tokens"], part_punctuation=False)
            lengths = [((word.amax(1) + 1).tolist()) for word in (source_word, target_word)]
            context = [
                word_weights(weights.double(), target_word, source_word)
                for weights in captured["decoder_context"]
            ]
            order = sample["id"].argsort().tolist()
            facts = [_gold_of(gold, sentences + i, lengths, row) for i, row in enumerate(order)]
            latent = []
            if model.alignment is not None and query == "output":
                weights = model.posterior_alignment(sample).double().unsqueeze(1)
                latent.append(
                    (latent_candidate(), word_weights(weights, target_word, source_word).squeeze(1))
                )
            for candidate, weights in itertools.chain(candidates(context), latent):
                name = candidate_name(candidate)
                if name not in files:
                    beside = stack.enter_context(atomic_write(folder / f"{name}.pharaoh"))
                    files[name] = stack.enter_context(beside.open("w", encoding="utf-8"))
                    rates[name], rows[name] = ErrorRate(), candidate
                for row, facts_of_row in zip(order, facts):
                    found = links(weights[row, : lengths[1][row], : lengths[0][row]])
                    files[name].write(pharaoh(found) + "\n")
                    rates[name].add(found, *facts_of_row)
            sentences += len(order)
            words += sum(lengths[1])
        if gold is not None and len(gold) != sentences:
            raise UserError(f"{gold.path} has {len(gold)} lines for {sentences} sentences")
        for file in files.values():
            file.close()
    return {
        "sentences": sentences,
        "query": query,
        "candidates": [
            {
                "name": name,
                **rows[name],
                "links": rate.links,
                "aligned": rate.links / words if words else None,
                **(rate.scores() if gold is not None else {}),
            }
            for name, rate in rates.items()
        ],
    }


def _gold_of(gold: Gold | None, number: int, lengths: list[list[int]], row: int):
    if gold is None:
        return frozenset(), frozenset()
    if number >= len(gold):
        raise UserError(f"{gold.path} has {len(gold)} lines, fewer than the sentences of the split")
    return gold.sentence(number, lengths[0][row], lengths[1][row])


def best(rows: list[dict], heads_only: bool) -> dict | None:
    """The row with the lowest ``aer``, among heads or among all candidates; None without gold."""
    scored = [
        row for row in rows if row.get("aer") is not None and (row["head"] is not None or not heads_only)
    ]
    return min(scored, key=lambda row: row["aer"], default=None)
