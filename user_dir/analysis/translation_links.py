"""Word alignment of translations with their sources, as these were given and those are printed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from ..corpora.reserved import SEPARATORS
from ..errors import UserError
from .alignment import Link, candidates, links, word_weights
from .alignment_choice import Choice
from .capture import captured_attention, on_device
from .translated import dataset_of
from .words import detect_scheme

_UNKNOWN = "\ufffd"


class Pair(NamedTuple):
    """A sentence and a translation: as text, as it was given and is printed, and as tokens, ``</s>`` last."""

    text: str
    source: np.ndarray
    translation: str
    target: np.ndarray


class TranslationAligner:
    """Links between words, which white space parts, by what the models attend to as they read translations.

    Args:
        models: one or more of a translator, whose weights are averaged.
        task: theirs.
        choices: by which candidate of each model.
        max_tokens: of a batch, on one side.

    Raises:
        UserError: a model has no such candidate.
    """

    def __init__(self, models: Sequence, task, choices: Sequence[Choice], max_tokens: int):
        self._models, self._task, self._choices = models, task, choices
        self._max_tokens = max_tokens
        self._texts = [_texts(each) for each in (task.source_dictionary, task.target_dictionary)]
        for model, choice in zip(models, choices):
            shapes = [torch.empty(1, each.num_heads, 0, 0) for each in model.attentions()["decoder_context"]]
            latent = None if model.alignment is None else torch.empty(1, 0, 0)
            names = [name for name, *_ in candidates(shapes, latent)]
            if choice.name not in names:
                raise UserError(
                    f"the model has no {choice.name} to align with, only {', '.join(names) or 'none'}"
                )

    def __call__(self, pairs: Sequence[Pair]) -> list[list[Link]]:
        """The links of each pair, word by word of the translation."""
        found: list[list[Link]] = [[] for _ in pairs]
        lengths = [max(len(each.source), len(each.target)) for each in pairs]
        order = sorted(range(len(pairs)), key=lengths.__getitem__)
        while order:
            size = max(1, self._max_tokens // lengths[order[-1]])
            members, order = order[-size:], order[:-size]
            for i, each in zip(members, self._batch([pairs[i] for i in members])):
                found[i] = each
        return found

    @torch.no_grad()
    def _batch(self, pairs: list[Pair]) -> list[list[Link]]:
        dataset = dataset_of(self._task, [each.source for each in pairs], [each.target for each in pairs])
        sample = on_device(dataset.collater([dataset[i] for i in range(len(pairs))]), self._models[0])
        order = sample["id"].tolist()
        given = sample["net_input"]
        source = [words_of(pairs[i].text, self._pieces(0, pairs[i].source)) for i in order]
        target = [words_of(pairs[i].translation, self._pieces(1, pairs[i].target)) for i in order]
        key = _placed(given["src_tokens"], source, self._task.source_dictionary.pad())
        query = {
            "output": _placed(sample["target"], target, self._task.target_dictionary.pad()),
            "input": _placed(
                given["prev_output_tokens"],
                [[-1, *words[:-1]] for words in target],
                self._task.target_dictionary.pad(),
            ),
        }
        total = sum(
            _weights(model, sample, choice, query[choice.query], key)
            for model, choice in zip(self._models, self._choices)
        )
        found = links(total)
        return [found[order.index(row)] for row in range(len(pairs))]

    def _pieces(self, side: int, tokens: np.ndarray) -> list[str | None]:
        return [self._texts[side][token] for token in tokens.tolist()]


def words_of(text: str, pieces: Sequence[str | None]) -> list[int]:
    """The word of a text, which white space parts, that each piece of it begins in.

    Where pieces were normalised or the text detokenised, their characters are matched first. A piece that is
    None is outside words: −1.
    """
    owners = [number for number, word in enumerate(text.split()) for _ in word]
    flat, joined = "".join(text.split()), "".join(piece or "" for piece in pieces)
    places = list(range(len(flat)))
    if joined != flat:
        places = [0] * len(joined)
        for _, i, i_end, j, j_end in difflib.SequenceMatcher(
            None, flat, joined, autojunk=False
        ).get_opcodes():
            for k in range(j, j_end):
                places[k] = min(i + (k - j) * (i_end - i) // (j_end - j), len(flat) - 1)
    places.append(len(flat) - 1)  # of an empty piece at the end
    starts = accumulate((len(piece or "") for piece in pieces), initial=0)
    return [
        -1 if piece is None or not owners else owners[places[start]] for piece, start in zip(pieces, starts)
    ]


def _texts(dictionary: Dictionary) -> list[str | None]:
    """The characters of each symbol, without marks of words; None for symbols that are no part of a text."""
    scheme, texts = detect_scheme(dictionary), []
    for index, symbol in enumerate(dictionary.symbols):
        if symbol in SEPARATORS or (index < dictionary.nspecial and index != dictionary.unk()):
            texts.append(None)
        elif index == dictionary.unk() or (symbol.startswith("<0x") and symbol.endswith(">")):
            texts.append(_UNKNOWN)
        else:
            texts.append(symbol.removesuffix("@@") if scheme == "subword_nmt" else symbol.replace("▁", ""))
    return texts


def _placed(tokens: Tensor, words: list[list[int]], padding: int) -> Tensor:
    """The words of each row's tokens (B, T), padded on either side."""
    placed = torch.full_like(tokens, -1)
    placed[tokens.ne(padding)] = torch.tensor([each for row in words for each in row], device=tokens.device)
    return placed


def _weights(model, sample: dict, choice: Choice, query: Tensor, key: Tensor) -> Tensor:
    """The weights of a candidate between words, (B, target words, source words)."""
    with captured_attention(model, ["decoder_context"]) as captured:
        model(**sample["net_input"])
    context, latent = captured["decoder_context"], None
    if choice.name == "alignment":
        posterior = model.posterior_alignment(sample).unsqueeze(1)
        latent, context = word_weights(posterior.double(), query, key).squeeze(1), []
    context = [word_weights(each.double(), query, key) for each in context]
    return next(weights for name, _, weights in candidates(context, latent) if name == choice.name)
