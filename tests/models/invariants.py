"""What holds for every translation model: padding and decoding step by step change nothing."""

from __future__ import annotations

import torch
from helpers import MODEL_TOLERANCE
from torch import Tensor


def outputs(model, sample: dict[str, Tensor]) -> Tensor:
    return model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])[0]


def assert_padding_changes_nothing(model, sample: dict[str, Tensor]) -> None:
    """Each sentence alone, without padding, has the outputs that it has in the batch."""
    together, pad = outputs(model, sample), model.encoder.padding_idx
    for row, (source, target) in enumerate(zip(sample["src_tokens"], sample["prev_output_tokens"])):
        source, target = source[source != pad][None], target[target != pad][None]
        alone = model(source, torch.tensor([source.size(1)]), target)[0][0]
        torch.testing.assert_close(alone, together[row, : len(alone)], **MODEL_TOLERANCE)


def assert_steps_equal_the_whole(model, sample: dict[str, Tensor]) -> None:
    """The decoder, given one word more at a time, has the outputs of teacher forcing."""
    whole, tokens = outputs(model, sample), sample["prev_output_tokens"]
    encoded, state = model.encoder(sample["src_tokens"], sample["src_lengths"]), {}
    for t in range(tokens.size(1)):
        step, _ = model.decoder(tokens[:, : t + 1], encoder_out=encoded, incremental_state=state)
        real = tokens[:, t] != model.encoder.padding_idx
        torch.testing.assert_close(step[real, 0], whole[real, t], **MODEL_TOLERANCE)
