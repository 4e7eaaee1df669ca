"""The most probable translation of a sentence, by depth-first search."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_PREFIXES = 1_000_000  # prefixes in memory, after which a search gives up


@dataclass(frozen=True)
class Mode:
    """The most probable translation of a sentence; log p in nats, not normalised by the length."""

    tokens: list[int]  # with ``</s>``
    log_p: float
    empty_log_p: float  # of the empty translation, ``</s>`` alone; −∞ if it has no probability
    exact: bool  # whether the search was completed; if not, this is the most probable translation found
    expanded: int  # number of prefixes whose continuations were computed

    @property
    def is_empty(self) -> bool:
        """Whether it is the empty translation."""
        return len(self.tokens) == 1


@torch.no_grad()
def most_probable(
    model,
    source: Tensor,
    *,
    known: tuple[list[int], float] | None = None,
    most_expansions: int = 5000,
    batch: int = 64,
) -> Mode:
    """Find the most probable translation among all of them, including the empty one.

    A prefix is as probable as all its continuations together, so those that are no more probable than the
    best translation known so far are not continued. Where few tokens have a probability, few prefixes remain.

    Args:
        model: a fairseq encoder-decoder, in evaluation mode.
        source: (S,) tokens of the source, with ``</s>``, without padding.
        known: a translation, with ``</s>``, and its log p, which saves time and does not change the result.
        most_expansions: give up after so many prefixes, or if MAX_PREFIXES wait to be continued.
        batch: number of prefixes that are continued at the same time.

    Source: Stahlberg and Byrne 2019 (https://arxiv.org/abs/1908.10090), algorithm 1; the batches are ours.
    """
    decoder = model.decoder
    eos, pad = decoder.dictionary.eos(), decoder.dictionary.pad()
    encoded = model.encoder(source[None], torch.tensor([len(source)], device=source.device))
    longest = model.max_decoder_positions() - 1
    best, best_log_p = known or ([eos], -math.inf)
    empty_log_p = -math.inf
    open_prefixes: list[tuple[list[int], float]] = [([], 0.0)]  # by log p within a batch, the best at the end
    expanded = 0
    while open_prefixes:
        prefixes = [open_prefixes.pop() for _ in range(min(batch, len(open_prefixes)))]
        prefixes = [each for each in prefixes if each[1] > best_log_p]
        if not prefixes:
            continue
        if expanded + len(prefixes) > most_expansions or len(open_prefixes) > MAX_PREFIXES:
            return Mode(best, best_log_p, empty_log_p, False, expanded)
        expanded += len(prefixes)
        log_p = _continuations(model, encoded, [tokens for tokens, _ in prefixes], eos, pad)
        log_p += torch.tensor([score for _, score in prefixes], device=log_p.device)[:, None]
        log_p[:, pad] = -math.inf
        if not prefixes[0][0]:
            empty_log_p = log_p[0, eos].item()
        row = int(log_p[:, eos].argmax())
        if log_p[row, eos].item() > best_log_p:
            best, best_log_p = [*prefixes[row][0], eos], log_p[row, eos].item()
        log_p[:, eos] = -math.inf
        rows, words = (log_p > best_log_p).nonzero(as_tuple=True)
        scores = log_p[rows, words]
        order = scores.argsort()
        for i, word, score in zip(rows[order].tolist(), words[order].tolist(), scores[order].tolist()):
            if len(prefixes[i][0]) < longest:
                open_prefixes.append(([*prefixes[i][0], word], score))
    return Mode(best, best_log_p, empty_log_p, True, expanded)


def _continuations(model, encoded: dict, prefixes: list[list[int]], eos: int, pad: int) -> Tensor:
    """log p of every next token after each prefix, (prefixes, V), in float64."""
    device = encoded["encoder_out"][0].device
    lengths = torch.tensor([len(tokens) for tokens in prefixes], device=device)
    inputs = torch.full((len(prefixes), int(lengths.max()) + 1), pad)
    for row, tokens in zip(inputs, prefixes):
        row[: len(tokens) + 1] = torch.tensor([eos, *tokens])
    order = torch.zeros(len(prefixes), dtype=torch.long, device=device)
    output, extra = model.decoder(
        inputs.to(device), encoder_out=model.encoder.reorder_encoder_out(encoded, order)
    )
    last = output[torch.arange(len(prefixes), device=device), lengths][:, None]
    return model.get_normalized_probs((last, extra), log_probs=True)[:, 0].double()
