"""Word alignment of printed translations by the attention of the head or layer that aligns best.

A choice has the name of one of :func:`~.alignment.candidates` and one of :data:`~.alignment.QUERIES`, such as
``layer3-head0@input``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from ..checkpoints import load_checkpoint
from ..corpora import Corpus
from ..corpora.pieces import SEPARATORS, SPACE_MARK
from ..errors import UserError
from ..files import shown
from .alignment import QUERIES, Link, align_split, candidates, links, pharaoh
from .capture import dataset_of, on_device, open_split

SENTENCES = 1000  # of the validation split, on which candidates are compared
KEY = "alignment"
"""Key of the choice in ``extra_state`` of an exported checkpoint."""

_UNKNOWN = "\ufffd"


def parse_choice(text: str) -> str:
    """Parse ``LAYER`` (the mean of its heads) or ``LAYER:HEAD``, optionally with ``@input`` or ``@output``.

    Raises:
        UserError: the text has another form.
    """
    match = re.fullmatch(r"(\d+)(?::(\d+))?(?:@(input|output))?", text, re.ASCII)
    if match is None:
        raise UserError(
            f"--alignment-head {shown(text)}: give LAYER or LAYER:HEAD, from 0, such as 3 or 3:0@input"
        )
    layer, head, query = match.groups()
    return f"layer{int(layer)}{'' if head is None else f'-head{int(head)}'}@{query or 'output'}"


def choice_for(checkpoint: Path, corpus: Corpus, head: str | None = None, *, cpu: bool = False) -> str:
    """The choice in ``head`` (:func:`parse_choice`), else the checkpoint's, else the best on validation.

    The best is the candidate whose links tell most about the target words (:func:`~.alignment.told_bits`), at
    either of the two steps in :data:`~.alignment.QUERIES`. Raises UserError if the model has no context
    attention, or the corpus no validation split.
    """
    if head is not None:
        return parse_choice(head)
    if choice := (load_checkpoint(checkpoint).get("extra_state") or {}).get(KEY):
        return choice
    split, bits = open_split(checkpoint, corpus, "valid", sentences=SENTENCES, cpu=cpu), {}
    for query in QUERIES:
        rows = align_split(split, query=query)["candidates"]
        bits |= {f"{row['name']}@{query}": row["bits"] for row in rows if row["bits"] is not None}
    return max(bits, key=bits.__getitem__)


class TranslationAligner:
    """Links words, separated by white space, by what a model attends to while it reads translations.

    ``task`` is the model's; ``max_tokens`` limits one side of a batch.
    """

    def __init__(self, model, task, choice: str, max_tokens: int):
        self._model, self._task, self._max_tokens = model, task, max_tokens
        self._chosen, self._query = choice.split("@")
        self._texts = [_texts(task.source_dictionary), _texts(task.target_dictionary)]

    @torch.no_grad()
    def __call__(self, sentences: list[str], encoded: list[np.ndarray], translations) -> list[list[str]]:
        """The links of each hypothesis of each sentence, as :func:`~.alignment.pharaoh` writes them.

        ``encoded`` has the tokens of each sentence, and ``translations`` its hypotheses by
        :class:`~..translation.translator.Translator`. Raises UserError if the model has no such candidate.
        """
        pairs = [
            (sentence, tokens, hypothesis)
            for sentence, tokens, hypotheses in zip(sentences, encoded, translations)
            for hypothesis in hypotheses
        ]
        aligned = [""] * len(pairs)
        lengths = np.array([max(len(tokens), len(best.tokens)) for _, tokens, best in pairs], int)
        order = np.argsort(lengths, kind="stable")
        sources, targets = [tokens for _, tokens, _ in pairs], [best.tokens for *_, best in pairs]
        dataset = dataset_of(self._task, sources, targets)
        most = max([self._max_tokens, *lengths])
        for members in dataset.batch_by_size(order, max_tokens=most) if pairs else ():
            sample = on_device(dataset.collater([dataset[i] for i in members]), self._model)
            rows = sample["id"].tolist()
            for i, linked in zip(rows, self._links(sample, [pairs[i] for i in rows])):
                aligned[i] = pharaoh(linked)
        remaining = iter(aligned)
        return [[next(remaining) for _ in hypotheses] for hypotheses in translations]

    def _links(self, sample: dict, pairs: list[tuple]) -> list[list[Link]]:
        """The links of a batch; ``pairs`` has the sentence, its tokens and its hypothesis for each row."""
        inputs, padding = sample["net_input"], self._task.source_dictionary.pad()
        source = [words_of(text, self._pieces(0, tokens)) for text, tokens, _ in pairs]
        target = [words_of(best.text, self._pieces(1, best.tokens)) for *_, best in pairs]
        key = _placed(inputs["src_tokens"], source, padding)
        query = _placed(sample["target"], target, padding)
        if self._query == "input":  # a word is read one step after it is predicted
            read = [[-1, *words[:-1]] for words in target]
            query = _placed(inputs["prev_output_tokens"], read, padding)
        named = candidates(self._model, sample, query, key, self._query)
        weights = {name: weights for name, _, weights in named}
        if self._chosen not in weights:
            names = ", ".join(weights) or "none"
            raise UserError(f"the model has no {self._chosen} to align with, only {names}")
        return links(weights[self._chosen])

    def _pieces(self, side: int, tokens: np.ndarray) -> list[str | None]:
        return [self._texts[side][token] for token in tokens.tolist()]


def words_of(text: str, pieces: Sequence[str | None]) -> list[int]:
    """The index of the word, separated by white space, that each piece of a text begins in.

    If normalised pieces or a detokenised text have other characters, both are matched first. The index is −1
    for a piece that is None, which is outside words.
    """
    owners = [number for number, word in enumerate(text.split()) for _ in word]
    flat, joined = "".join(text.split()), "".join(piece or "" for piece in pieces)
    places = list(range(len(flat)))
    if joined != flat:
        places = [0] * len(joined)
        matcher = difflib.SequenceMatcher(None, flat, joined, autojunk=False)
        for _, i, i_end, j, j_end in matcher.get_opcodes():
            for k in range(j, j_end):
                places[k] = min(i + (k - j) * (i_end - i) // (j_end - j), len(flat) - 1)
    places.append(len(flat) - 1)  # for an empty piece at the end
    starts = accumulate((len(piece or "") for piece in pieces), initial=0)
    return [
        -1 if piece is None or not owners else owners[places[start]] for piece, start in zip(pieces, starts)
    ]


def _texts(dictionary: Dictionary) -> list[str | None]:
    """The text of each symbol, without marks of word starts; None for symbols that are not part of a text."""
    texts: list[str | None] = [symbol.replace(SPACE_MARK, "") for symbol in dictionary.symbols]
    texts[: dictionary.nspecial] = [None] * dictionary.nspecial
    texts[dictionary.unk()] = _UNKNOWN
    return [None if symbol in SEPARATORS else text for symbol, text in zip(dictionary.symbols, texts)]


def _placed(tokens: Tensor, words: list[list[int]], padding: int) -> Tensor:
    """The word index of each token (B, T), which may be padded on either side; −1 at padding."""
    placed = torch.full_like(tokens, -1)
    numbers = [number for row in words for number in row]
    placed[tokens.ne(padding)] = torch.tensor(numbers, device=tokens.device)
    return placed
