"""The encoder and a step of the decoder as functions of tensors alone, which ONNX can express."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..decoding.parts import with_parts


class Positions(nn.Module):
    """In the place of the embeddings of positions: their table, which nothing extends.

    Args:
        side: the encoder or decoder.
        longest: how many positions there may be.
    """

    def __init__(self, side: nn.Module, longest: int):
        super().__init__()
        self.padding = side.padding_idx
        words = torch.full((1, longest), self.padding + 1)
        self.register_buffer("table", side.embed_positions(words)[0].detach().clone())

    def forward(self, tokens: Tensor, incremental_state: dict | None = None) -> Tensor:
        """(B, S, C) of tokens (B, S), which are counted without padding; or (1, 1, C) of the step."""
        if incremental_state is not None:
            return self.table[incremental_state["step"]][None]
        seen = tokens.ne(self.padding)
        places = (seen.long().cumsum(1) - 1).clamp_min(0)
        return self.table[places] * seen[:, :, None]


def positions(side: nn.Module, longest: int) -> Positions | None:
    """:class:`Positions`, unless the model has none."""
    return None if side.embed_positions is None else Positions(side, longest)


class Encoder(nn.Module):
    """From a source to what the decoder reads of it: all keys and values of context attention."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.encoder, self.layers = model.encoder, model.decoder.layers
        self.positions = positions(model.encoder, model.max_positions()[0])

    def forward(self, source: Tensor) -> Tensor:
        """(L, 2, B, H, S, D) of int64 tokens (B, S), padded on either side."""
        encoder = self.encoder
        padding = source.eq(encoder.padding_idx)
        x, _ = with_parts(encoder, embed_positions=self.positions).forward_embedding(source)
        x = x.masked_fill(padding[:, :, None], 0.0).transpose(0, 1)
        for layer in encoder.layers:
            x = layer(x, encoder_padding_mask=padding)
        if encoder.layer_norm is not None:
            x = encoder.layer_norm(x)
        return torch.stack([self._keys_and_values(layer.encoder_attn, x) for layer in self.layers])

    @staticmethod
    def _keys_and_values(attention: nn.Module, x: Tensor) -> Tensor:
        sides = torch.stack([attention.k_proj(x), attention.v_proj(x)])  # (2, S, B, C)
        return sides.unflatten(3, (attention.num_heads, -1)).permute(0, 2, 3, 1, 4)


class DecoderStep(nn.Module):
    """One step of the decoder."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.decoder = model.decoder
        self.positions = positions(model.decoder, model.max_positions()[1])

    def forward(self, token: Tensor, past: Tensor, context: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (B, V) after one more token, and its keys and values behind the ``past``.

        Args:
            token: int64 (B,).
            past: keys and values of the tokens before it, (L, 2, B, H, T, D), at first of none.
            context: of :class:`Encoder`.
            source: its tokens (B, S).
        """
        decoder, state = self.decoder, {"step": torch.arange(past.size(4), past.size(4) + 1)}
        padding = source.eq(decoder.padding_idx)
        seen = past.new_zeros(past.size(2), past.size(4), dtype=torch.bool)
        for layer, own, given in zip(decoder.layers, past, context):
            for attention, (key, value), mask in (
                (layer.self_attn, own, seen),
                (layer.encoder_attn, given, padding),
            ):
                cached = {"prev_key": key, "prev_value": value, "prev_key_padding_mask": mask}
                attention.set_incremental_state(state, "attn_state", cached)
        # of the encoder's output layers ask only whether it is there
        encoder_out = {"encoder_out": [context], "encoder_padding_mask": [padding]}
        step = with_parts(decoder, embed_positions=self.positions)
        features, extra = step.extract_features(token[:, None], encoder_out, state)
        scores = decoder.outputs(features, extra, encoder_out, state)
        log_probs = decoder.get_normalized_probs((scores, extra), log_probs=True)
        saved = [layer.self_attn.get_incremental_state(state, "attn_state") for layer in decoder.layers]
        present = [torch.stack([each["prev_key"], each["prev_value"]]) for each in saved]
        return log_probs[:, 0], torch.stack(present)
