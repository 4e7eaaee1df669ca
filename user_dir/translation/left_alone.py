"""Machine translations that a post-editor with a gate leaves alone: what they are needs no search.

The gate may say so before anything is written. A greedy search, which writes token by token, also repeats a
translation if each of its tokens is the most probable one after those before it, which a single pass over all
of them tells: Sun et al. 2021 (https://aclanthology.org/2021.acl-long.462), section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from fairseq.search import BeamSearch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..guards.translation import longest
from ..models.copying_decoder import CopyingBertDecoder

TOKENS = 512  # of whose probabilities there are logits at a time


def search_others(search: Callable[[dict], list], generator, models: Sequence, sample: dict) -> list:
    """The hypotheses of each sentence of a batch, after a ``search`` for those that are not left alone."""
    alone = _left_alone(generator, models, sample)
    if not alone:
        return search(sample)
    others = [row for row in range(len(sample["net_input"]["src_tokens"])) if row not in alone]
    rows = torch.tensor(others, device=sample["net_input"]["src_tokens"].device, dtype=torch.long)
    given = {key: sample["net_input"][key][rows] for key in ("src_tokens", "src_lengths")}
    found = dict(zip(others, search({**sample, "net_input": given}) if others else ()))
    return [found[row] if row in found else [alone[row]] for row in range(len(found) + len(alone))]


@torch.no_grad()
def _left_alone(generator, models: Sequence, sample: dict) -> dict[int, dict]:
    """The only hypothesis, in fairseq's form, of each row that is known to be left alone."""
    decoder = getattr(models[0], "decoder", None)
    if len(models) > 1 or not isinstance(decoder, CopyingBertDecoder):
        return {}
    source = sample["net_input"]["src_tokens"]
    encoder_out = models[0].encoder(source, sample["net_input"]["src_lengths"])
    limit = longest(generator, source)
    translations = {  # one that is longer is cut, as the search does
        row: tokens for row, tokens in decoder.translations(encoder_out).items() if len(tokens) <= limit
    }
    scores = {
        row: torch.zeros(len(translations[row]), device=source.device)
        for row in decoder.left_alone(encoder_out)
        if row in translations
    }
    if _is_greedy(generator):
        others = {row: tokens for row, tokens in translations.items() if row not in scores}
        scores |= _repeated(generator, models[0], encoder_out, others)
    return {row: _hypothesis(generator, translations[row], each) for row, each in scores.items()}


def _hypothesis(generator, tokens: Tensor, scores: Tensor) -> dict:
    total = scores.sum()
    if generator.normalize_scores:
        total = total / len(tokens) ** generator.len_penalty
    found = {"tokens": tokens, "score": total, "positional_scores": scores, "attention": None}
    return {**found, "alignment": scores[:0]}


def _is_greedy(generator) -> bool:
    """Whether the search writes the most probable token at each step, whatever it is."""
    own = generator.lm_model, generator.repeat_ngram_blocker, generator.token_indices_to_suppress
    plain = type(generator.search) is BeamSearch and own == (None, None, None)
    changed = generator.beam_size != 1 or generator.temperature != 1 or generator.unk_penalty
    return plain and not changed and not generator.match_source_len


def _repeated(generator, model, encoder_out: dict, translations: dict[int, Tensor]) -> dict[int, Tensor]:
    """Of the translations, by row, that a greedy search repeats: log p of each token."""
    found, rows = {}, sorted(translations, key=lambda row: len(translations[row]))
    while rows:
        count = max(1, TOKENS // len(translations[rows[-1]]))
        part, rows = rows[-count:], rows[:-count]
        wanted = pad_sequence([translations[row] for row in part], True, generator.pad)  # (B, T)
        previous = wanted.roll(1, 1)
        previous[:, 0] = generator.eos
        order = torch.tensor(part, device=wanted.device)
        log_p, _ = model.decoder(previous, model.encoder.reorder_encoder_out(encoder_out, order))
        log_p[..., generator.pad] = -torch.inf
        log_p[:, : generator.min_len, generator.eos] = -torch.inf
        same = (log_p.argmax(-1) == wanted) | (wanted == generator.pad)
        chosen = log_p.gather(2, wanted[..., None])[..., 0]
        for row, repeated, scores in zip(part, same.all(1).tolist(), chosen):
            if repeated:
                found[row] = scores[: len(translations[row])]
    return found
