"""Word alignment from context attention: of a whole split, as Pharaoh files, with its error rate."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from ..files import read_text, shown, write_json, write_text
from .capture import Split, captured_attention
from .results import rounded, text_table

Link = tuple[int, int]
"""Source word and target word, both counted from 0."""
Gold = tuple[frozenset[Link], frozenset[Link]]
"""The sure links of a sentence, and all its links."""
Words = tuple[list[tuple[int, ...]], list[tuple[int, ...]]]
"""The words of a sentence and of its translation, each as the tuple of its tokens."""
QUERIES = ("output", "input")
"""The step whose attention aligns a target word: the one that predicts it, or the one that reads it (Chen et
al. 2020)."""

_LINK = re.compile(r"(\d+)([-?p])(\d+)", re.ASCII)


def word_weights(weights: Tensor, query_word: Tensor, key_word: Tensor) -> Tensor:
    """Convert attention weights between subword pieces to weights between words.

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
    """Link each target word of each sentence to the source word with the largest weight (ties: the first).

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


def read_gold(path: str | Path, sentences: int | None = None) -> list[Gold]:
    """The sure links and all links of each line of a gold file: ``i-j`` is sure; ``i?j``, ``ipj`` possible.

    ``i`` is a source word and ``j`` a target word, split at spaces and counted from 0. ``sentences``: read
    only the first N lines.

    Raises:
        UserError: the file cannot be read or has an invalid link.
    """
    gold = []
    for number, line in enumerate(read_text(path, "the gold alignment").splitlines()[:sentences], start=1):
        sure, possible = set(), set()
        for word in line.split():
            match = _LINK.fullmatch(word)
            if not match:
                raise UserError(f"{path}, line {number}: {shown(word)} is not a link i-j or i?j")
            link = int(match[1]), int(match[3])
            possible.add(link)
            if match[2] == "-":
                sure.add(link)
        gold.append((frozenset(sure), frozenset(possible)))
    return gold


def told_bits(linked: Counter[tuple[Hashable, Hashable]]) -> float | None:
    """Mean information in bits that a linked source word gives about its target word; None without words.

    This is the mean of log₂ p(t | s) / p(t) over all target words t, where p(t) is their relative frequency.
    In p(t | s) = (n(s, t) − 1 + p(t)) / n(s), the link of t itself counts p(t) instead of 1, so that no link
    predicts itself. Good alignments link a word with its translations, which gives more information.

    Args:
        linked: how often each pair of a source word (None for no link) and a target word occurs.
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


def error_rate(aligned: Sequence[list[Link]], gold: Sequence[Gold]) -> dict[str, float | None]:
    """``aer``, ``precision`` and ``recall`` of links A, sure S and possible P of all sentences; None for 0/0.

    AER = 1 − (#(A∩S) + #(A∩P)) / (#A + #S), precision = #(A∩P) / #A, recall = #(A∩S) / #S (Och and Ney
    2003, section 4.1).
    """
    all_links, all_sure = sum(map(len, aligned)), sum(len(sure) for sure, _ in gold)
    in_sure = sum(len(sure.intersection(links)) for links, (sure, _) in zip(aligned, gold))
    in_possible = sum(len(possible.intersection(links)) for links, (_, possible) in zip(aligned, gold))
    return {
        "aer": 1 - (in_sure + in_possible) / (all_links + all_sure) if all_links + all_sure else None,
        "precision": in_possible / all_links if all_links else None,
        "recall": in_sure / all_sure if all_sure else None,
    }


def candidates(
    model, sample: dict, target_word: Tensor, source_word: Tensor, query: str
) -> Iterator[tuple[str, dict, Tensor]]:
    """Run a model on a batch, and yield alignments by each head, by each layer's mean and by the mean of all.

    If ``query`` is ``output``, a model's latent alignment, given the target words, follows. ``target_word``
    (B, T) and ``source_word`` (B, S) have the word of each query and key, as in :func:`word_weights`.

    Yields:
        the name, such as ``layer1-head0``, ``layer1``, ``all`` or ``alignment``; ``{"layer": l, "head": h}``,
        with None where layers or heads are averaged; and the weights (B, target words, source words).
    """
    with captured_attention(model, ["decoder_context"]) as captured:
        model(**sample["net_input"])
    context = [word_weights(w.double(), target_word, source_word) for w in captured["decoder_context"]]
    for layer, weights in enumerate(context):
        for head in range(weights.size(1)):
            yield f"layer{layer}-head{head}", {"layer": layer, "head": head}, weights[:, head]
        yield f"layer{layer}", {"layer": layer, "head": None}, weights.mean(1)
    if context:
        mean = torch.stack([weights.mean(1) for weights in context]).mean(0)
        yield "all", {"layer": None, "head": None}, mean
    if model.alignment is not None and query == "output":
        posterior = model.posterior_alignment(sample).double().unsqueeze(1)
        latent = word_weights(posterior, target_word, source_word).squeeze(1)
        yield "alignment", {"layer": None, "head": None, "latent": True}, latent


@torch.no_grad()
def align_split(
    split: Split, folder: Path | None = None, gold: Sequence[Gold] | None = None, query: str = "output"
) -> dict:
    """Align a split by each of :func:`candidates`; write ``NAME.pharaoh`` files to ``folder``, if given.

    A file has a line per sentence. ``gold`` is from :func:`read_gold`, ``query`` is one of :data:`QUERIES`.

    Returns:
        ``sentences``, ``query`` and ``candidates``: for each its ``name``, ``layer``, ``head``, number of
        ``links``, share of target words with a link, ``aligned``, ``bits`` (:func:`told_bits`), and, with
        ``gold``, ``aer``, ``precision`` and ``recall``.

    Raises:
        UserError: the model has no context attention, or the gold links do not fit.
    """
    if not split.model.attentions()["decoder_context"] and split.model.alignment is None:
        raise UserError("the model has no context attention to align with")
    about: dict[str, dict] = {}
    aligned: dict[str, list[list[Link]]] = {}
    texts: list[Words] = []
    source, target = split.pieces()
    for sample in split.samples(in_order=True):
        read, read_by = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        written = sample["target"] if query == "output" else read_by
        source_word = source.words(read, part_punctuation=False)
        target_word = target.words(written, part_punctuation=False)
        order = sample["id"].argsort().tolist()
        of_batch = list(zip(_words(read, source_word), _words(written, target_word)))
        texts += [of_batch[row] for row in order]
        for name, facts, weights in candidates(split.model, sample, target_word, source_word, query):
            about[name], linked = facts, links(weights)
            aligned.setdefault(name, []).extend(linked[row] for row in order)
    if gold is not None:
        _check_gold(gold, texts)
    words, rows = sum(len(target_words) for _, target_words in texts), []
    for name, sentences in aligned.items():
        if folder is not None:
            text = "".join(pharaoh(sentence) + "\n" for sentence in sentences)
            write_text(folder / f"{name}.pharaoh", text)
        count = sum(map(len, sentences))
        row = {"name": name, **about[name], "links": count, "aligned": count / words if words else None}
        row["bits"] = told_bits(_linked_words(sentences, texts))
        rows.append(row | ({} if gold is None else error_rate(sentences, gold)))
    return {"sentences": len(texts), "query": query, "candidates": rows}


def _check_gold(gold: Sequence[Gold], texts: list[Words]) -> None:
    if len(gold) != len(texts):
        raise UserError(f"the gold alignment has {len(gold)} lines for {len(texts)} sentences")
    for number, ((_, possible), (source, target)) in enumerate(zip(gold, texts), start=1):
        if any(i >= len(source) or j >= len(target) for i, j in possible):
            raise UserError(f"line {number} of the gold alignment has a link outside the sentence")


def _linked_words(aligned: list[list[Link]], texts: list[Words]) -> Counter:
    """How often each source word, None for no link, goes with each target word."""
    linked: Counter[tuple[Hashable, Hashable]] = Counter()
    for sentence, (sources, targets) in zip(aligned, texts):
        source_of = {target: sources[source] for source, target in sentence}
        linked.update((source_of.get(target), word) for target, word in enumerate(targets))
    return linked


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

    See :func:`align_split`. Returns the content of ``alignment.json``. With ``gold`` it has ``best_head`` and
    ``best``, the head and the candidate with the lowest error rate.
    """
    report = rounded({**split.facts, **align_split(split, folder, gold, query)})
    scored = [row for row in report["candidates"] if row.get("aer") is not None]
    if gold is not None:
        heads = [row for row in scored if row["head"] is not None]
        report["best_head"] = min(heads, key=lambda row: row["aer"], default=None)
        report["best"] = min(scored, key=lambda row: row["aer"], default=None)
    write_json(folder / "alignment.json", report)
    return report


def alignment_summary(rows: list[dict]) -> str:
    """Links of each candidate of a word alignment, with error rates if there are gold links, as text."""
    columns = ["name", "links", "aligned", "bits", "aer", "precision", "recall"]
    columns = [column for column in columns if column in rows[0]]
    return text_table([[row[column] for column in columns] for row in rows], columns)
