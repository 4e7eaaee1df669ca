"""Machine translations that a post-editor's gate leaves alone: what they are needs no search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..guards.unfinished_translations import longest
from ..models.copying_decoder import CopyingBertDecoder


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
    """The only hypothesis, in fairseq's form, of each row that is left alone with probability 1."""
    decoder = getattr(models[0], "decoder", None)
    if len(models) > 1 or not isinstance(decoder, CopyingBertDecoder):
        return {}
    source = sample["net_input"]["src_tokens"]
    encoder_out = models[0].encoder(source, sample["net_input"]["src_lengths"])
    found = {}
    for row, tokens in decoder.left_alone(encoder_out).items():
        if len(tokens) <= longest(generator, source):  # or it is cut, as the search does
            zeros = torch.zeros(len(tokens), device=tokens.device)
            found[row] = {"tokens": tokens, "score": zeros.sum(), "positional_scores": zeros}
            found[row] |= {"attention": None, "alignment": zeros[:0]}
    return found
