"""fairseq's own Transformer without its questions to the device, whose answers a graph would repeat."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase, TransformerModel
from torch import Tensor


def ask_nothing(model: TransformerModel) -> None:
    """Let a model take every batch for one with padding; it computes the same.

    fairseq's encoder and decoder ask in every forward whether there is padding, and the decoder replaces its
    causal mask, which a graph would go on reading, when a longer batch comes.
    """
    model.encoder.forward_scriptable = MethodType(_encode, model.encoder)
    model.decoder.cross_self_attention = (
        True  # then the mask of padding is passed unasked; layers have a copy
    )
    model.decoder.buffered_future_mask = MethodType(_causal_mask, model.decoder)


def _encode(
    self: TransformerEncoderBase,
    src_tokens: Tensor,
    src_lengths: Tensor | None = None,
    return_all_hiddens: bool = False,
    token_embeddings: Tensor | None = None,
) -> dict[str, list[Any]]:
    """fairseq's ``forward_scriptable`` with ``has_pads`` true, for training."""
    padding = src_tokens.eq(self.padding_idx)
    x, embedding = self.forward_embedding(src_tokens, token_embeddings)
    x = (x * (1 - padding.unsqueeze(-1).type_as(x))).transpose(0, 1)
    states = [x]
    for layer in self.layers:
        result = layer(x, encoder_padding_mask=padding)
        x = result[0] if isinstance(result, tuple) else result
        states.append(x)
    if self.layer_norm is not None:
        x = self.layer_norm(x)
    lengths = src_tokens.ne(self.padding_idx).sum(1, keepdim=True, dtype=torch.int32)
    return {
        "encoder_out": [x],
        "encoder_padding_mask": [padding],
        "encoder_embedding": [embedding],
        "encoder_states": states if return_all_hiddens else [],
        "fc_results": [],
        "src_tokens": [],
        "src_lengths": [lengths],
    }


def _causal_mask(self: TransformerDecoderBase, tensor: Tensor) -> Tensor:
    length = tensor.size(0)
    return tensor.new_full((length, length), float("-inf")).triu(1)
