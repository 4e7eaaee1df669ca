"""The model's encoder without padding, and its decoder one position at a time, with caches never copied."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attentions import CachedAttention, PackedAttention, Padding
from .outputs import output_of
from .parts import SumNorm, search_layer, with_parts
from .products import Product
from .state import Memory, State


class EncoderPass:
    """The model's encoder, in evaluation mode; padding takes no time.

    Args:
        encoder: the model's.
        product: how linear layers are computed.
    """

    def __init__(self, encoder: nn.Module, product: type[Product]):
        self._encoder, self._last = encoder, SumNorm(encoder.layer_norm)
        self._layers = [
            search_layer(layer, product, self_attn=PackedAttention(layer.self_attn, product))
            for layer in encoder.layers
        ]

    def __call__(self, tokens: Tensor) -> Memory:
        """Encode sentences (B, S), padded on either side."""
        encoder = self._encoder
        seen, given = encoder.embedded(tokens)
        there = seen.ne(encoder.padding_idx)
        embedded, _ = encoder.forward_embedding(seen, given)
        rows, padding = embedded[there], Padding(there)
        for layer in self._layers:
            rows = layer(rows, padding)
        rows = self._last(rows)
        counts = there.sum(1)
        columns = torch.arange(int(counts.max()), dtype=torch.int32)
        places = (counts.cumsum(0) - counts).to(torch.int32)[:, None] + columns
        return Memory(rows, places, counts.to(torch.int32), tokens, there)


class DecoderPass:
    """The model's decoder, in evaluation mode, one position at a time.

    Args:
        decoder: the model's.
        product: how linear layers are computed.
    """

    def __init__(self, decoder: nn.Module, product: type[Product]):
        self._layers = [
            search_layer(
                layer,
                product,
                self_attn=CachedAttention(layer.self_attn, product, number),
                encoder_attn=layer.encoder_attn and CachedAttention(layer.encoder_attn, product, number),
            )
            for number, layer in enumerate(decoder.layers)
        ]
        self._decoder = with_parts(
            decoder, layers=[layer.forward for layer in self._layers], layer_norm=SumNorm(decoder.layer_norm)
        )
        self.output = output_of(decoder, product)
        self._normalizer = decoder.output_normalizer

    def start(self, memory: Memory, attention: bool = False) -> State:
        """One empty hypothesis for each sentence; ``attention``: keep what it attends to."""
        sentences = torch.arange(len(memory.counts), dtype=torch.int32)
        context = [layer.encoder_attn and layer.encoder_attn.keys(memory.rows) for layer in self._layers]
        places = torch.empty(len(sentences), 0, dtype=torch.int32)
        slabs: list[list[Tensor]] = [[] for _ in self._layers]
        state = State(context, memory, slabs, places, sentences, [] if attention else None)
        self.output.start(state)
        return state

    def step(self, state: State, tokens: Tensor) -> Tensor:
        """Features (R, C) at the next position, after the tokens (R, T)."""
        own = torch.arange(len(tokens), dtype=torch.int32)
        state.places = torch.cat([state.places, own[:, None]], dim=1)
        encoder_out = {"encoder_out": [state.memory.rows], "encoder_padding_mask": []}
        features, _ = self._decoder.extract_features(tokens, encoder_out, state)
        return features[:, 0]

    @property
    def is_sparse(self) -> bool:
        """Whether most symbols have the probability 0."""
        return self._normalizer.alpha() != 1

    def scores(self, features: Tensor, state: State, rows: slice, temperature: float) -> Tensor:
        """Logits (R, V), or probabilities if sparse, of features (R, C) of the hypotheses ``rows``."""
        logits = self.output(features, state, rows)
        if temperature != 1:
            logits = logits.div_(temperature)
        return self._normalizer(logits, log_probs=False) if self.is_sparse else logits
