"""The model's decoder, one position at a time, on tensors of fixed shapes whose values the host never reads.

Each layer runs its own ``forward``, on a copy of the layer with other attention modules and no dropout.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from ..attention import AttentionInputs
from ..models.layers import layers_of
from .device_state import State


class Copies:
    """Tensors at fixed addresses, computed from parameters: constant during a search, refreshed before it."""

    def __init__(self) -> None:
        self._all: list[tuple[Tensor, Callable[[], Tensor]]] = []

    def add(self, compute: Callable[[], Tensor]) -> Tensor:
        """The tensor that holds the result of ``compute()``, and is overwritten by each refresh."""
        place = compute()
        self._all.append((place, compute))
        return place

    def refresh(self) -> None:
        """Compute all of them again."""
        for place, compute in self._all:
            place.copy_(compute())


class DeviceDecoder:
    """The model's decoder, in evaluation mode, with memory of fixed addresses.

    Parameters that it does not copy are read in place.

    Args:
        decoder: the model's.
        positions: the largest possible number of positions.

    Attributes:
        copies: to be refreshed before a search.
    """

    def __init__(self, decoder: nn.Module, positions: int):
        self.copies = copies = Copies()
        self._layers = [
            _with_parts(
                layer,
                self_attn=_SelfAttention(layer.self_attn, number, copies),
                encoder_attn=layer.encoder_attn and _ContextAttention(layer.encoder_attn, number, copies),
            )
            for number, layer in enumerate(layers_of(decoder))
        ]
        embedding = decoder.embed_positions
        if embedding is not None:
            device = decoder.output_projection.weight.device
            words = torch.full((1, positions), embedding.padding_idx + 1, device=device)
            table = copies.add(lambda: embedding(words)[0])
        self._decoder = _with_parts(
            decoder,
            layers=[layer.forward for layer in self._layers],
            embed_positions=embedding
            and (lambda tokens, incremental_state: table.index_select(0, incremental_state.step)[None]),
        )

    def context(self, encoded: Tensor) -> list[Tensor]:
        """Keys and values of encoded sentences (S, B, C) by layer: (B, S, 2·C)."""
        attentions = [layer.encoder_attn for layer in self._layers if layer.encoder_attn is not None]
        return [attention.joined(encoded).transpose(0, 1) for attention in attentions]

    def step(self, state: State) -> Tensor:
        """Scores of all symbols at the next position (R, V), before softmax."""
        # a placeholder: layers only check whether there is a source
        encoder_out = {"encoder_out": [state.tokens], "encoder_padding_mask": []}
        features, _ = self._decoder.extract_features(state.tokens.view(-1, 1), encoder_out, state)
        return self._decoder.output_layer(features)[:, 0]


def _with_parts(module: nn.Module, **parts: object) -> nn.Module:
    """A copy of a module with other parts and without dropout, which shares all else, also the parameters.

    Parts need not be modules. They are plain attributes, which Python finds faster than submodules.
    """
    made = copy.copy(module)
    for name, part in module._modules.items():
        vars(made)[name] = (lambda x: x) if isinstance(part, FairseqDropout) else part
    vars(made).update(parts)
    vars(made).pop("forward", None)  # set by activation checkpointing, bound to the original
    return made


class _Attention:
    """What both kinds of attention share.

    Args:
        attention: the layer's.
        layer: its number.
        copies: gets what is computed from parameters.
        projections: the linear layers that are computed together.
    """

    def __init__(self, attention: nn.Module, layer: int, copies: Copies, *projections: nn.Linear):
        self.attention, self._layer = attention, layer
        self._weight = copies.add(lambda: torch.cat([projection.weight for projection in projections]))
        self._bias = copies.add(lambda: torch.cat([projection.bias for projection in projections]))
        self._alpha = copies.add(self._computed_alpha)

    def _computed_alpha(self) -> Tensor:
        """α in float64, as a kernel reads it."""
        alpha = self.attention.alpha.value()
        if isinstance(alpha, Tensor):
            return alpha.double()
        return self._weight.new_full((1, 1, 1), alpha, dtype=torch.float64)

    def joined(self, x: Tensor) -> Tensor:
        """The projections of x, side by side."""
        return nn.functional.linear(x, self._weight, self._bias)

    def _queries(self, projected: Tensor, x: Tensor, keys: Tensor) -> Tensor:
        """Queries (R, H, 1, D) from projections (R, C) of x (1, R, C), with any length scaling."""
        queries = projected.unflatten(1, (self.attention.num_heads, -1)).unsqueeze(2)
        scaling = self.attention.length_scaling
        return queries if scaling is None else scaling(queries, x, keys)

    def _attend(self, queries: Tensor, both: Tensor, mask: Tensor) -> tuple[Tensor, None]:
        """(1, R, C), as fairseq's layers return it, without weights.

        Args:
            queries: (B, H, T, D), with R = B·T.
            both: keys and values (B, S, 2·C).
            mask: padding (B, S).
        """
        attention = self.attention
        keys, values = both.view(*both.shape[:2], 2, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        inputs = AttentionInputs(queries, keys, values, self._alpha, mask)
        output, _ = attention.normalizer(inputs, attention.backend)
        output = output.transpose(1, 2).reshape(1, -1, attention.embed_dim)
        if attention.gated_norm is not None:
            output = attention.gated_norm(output)
        return attention.out_proj(output), None

    def _get_input_buffer(self, incremental_state: State) -> None:
        """Called by fairseq's layers; the caches are in the state."""


class _SelfAttention(_Attention):
    """Attention of single positions to those of the translation so far."""

    def __init__(self, attention: nn.Module, layer: int, copies: Copies):
        super().__init__(attention, layer, copies, attention.q_proj, attention.k_proj, attention.v_proj)

    def __call__(self, query: Tensor, incremental_state: State, **_: object) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C)."""
        state, channels = incremental_state, query.size(2)
        rows = self.joined(query[0])
        cache = state.caches[self._layer]
        cache.index_copy_(0, state.step, rows[None, :, channels:])
        both = cache.flatten(0, 1).index_select(0, state.places.flatten()).view_as(cache).transpose(0, 1)
        later = (state.positions > state.step).expand(state.rows, -1).contiguous()
        queries = self._queries(rows[:, :channels], query, (state.step + 1)[:, None].float())
        return self._attend(queries, both, later)


class _ContextAttention(_Attention):
    """Attention to the source, whose keys and values all hypotheses of a sentence share."""

    def __init__(self, attention: nn.Module, layer: int, copies: Copies):
        super().__init__(attention, layer, copies, attention.k_proj, attention.v_proj)

    def __call__(self, query: Tensor, incremental_state: State, **_: object) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C)."""
        state = incremental_state
        queries = self._queries(self.attention.q_proj(query[0]), query, state.visible)
        queries = queries.squeeze(2).unflatten(0, (-1, state.beam)).transpose(1, 2)
        return self._attend(queries, state.context[self._layer], state.mask)
