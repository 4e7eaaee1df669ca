"""The model's decoder one position at a time, on tensors of fixed shapes and without reading one of them.

What a layer computes, and in which order, is said by its own ``forward``, called on a copy of the layer that
has other attentions and no dropout.
"""

from __future__ import annotations

import copy

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from ..attention import AttentionInputs
from ..models.layers import layers_of
from .device_state import Arena, State


class DeviceDecoder:
    """The model's decoder, in evaluation mode, with memory of fixed addresses in an arena.

    The parameters that it does not copy it uses where they are.

    Args:
        decoder: the model's.
        arena: for the embeddings of positions.

    Attributes:
        attends: whether the decoder says what it attends to.
    """

    def __init__(self, decoder: nn.Module, arena: Arena):
        self._layers = [
            _with_parts(
                layer,
                self_attn=_SelfAttention(layer.self_attn, number),
                encoder_attn=layer.encoder_attn and _ContextAttention(layer.encoder_attn, number),
            )
            for number, layer in enumerate(layers_of(decoder))
        ]
        self.attends = self._layers[-1].encoder_attn is not None
        positions = decoder.embed_positions
        self._positions = None if positions is None else _Positions(positions, arena)
        layers = [layer.forward for layer in self._layers]
        self._decoder = _with_parts(decoder, layers=layers, embed_positions=self._positions)

    def refresh(self, positions: int) -> None:
        """Copy what is computed from parameters, which may have changed, and is the same in all steps.

        Args:
            positions: how many there may be.
        """
        for layer in self._layers:
            layer.self_attn.refresh()
            if layer.encoder_attn is not None:
                layer.encoder_attn.refresh()
        if self._positions is not None:
            self._positions.refresh(positions)

    def context(self, encoded: Tensor) -> list[Tensor]:
        """Keys and values of encoded sentences (S, B, C) by layer: (B, S, 2·C)."""
        attentions = [layer.encoder_attn for layer in self._layers if layer.encoder_attn is not None]
        return [attention.joined(encoded).transpose(0, 1) for attention in attentions]

    def step(self, state: State) -> tuple[Tensor, Tensor | None]:
        """Scores of all symbols at the next position (R, V), before softmax; and, if the state keeps it, what
        hypotheses attend to (R, S), mean over heads.
        """
        encoder_out = {
            "encoder_out": [state.source],
            "encoder_padding_mask": [],
        }  # only asked for whether it is
        features, extra = self._decoder.extract_features(state.tokens.view(-1, 1), encoder_out, state)
        attended = extra["attn"][0]
        return self._decoder.output_layer(features)[:, 0], None if attended is None else attended[:, 0]


def _with_parts(module: nn.Module, **parts: object) -> nn.Module:
    """A copy of a module with other parts, and without dropout; all else, and the parameters, it shares.

    Parts need not be modules. They are plain attributes, which Python finds faster than those of a module.
    """
    made = copy.copy(module)
    for name, part in module._modules.items():
        vars(made)[name] = (lambda x: x) if isinstance(part, FairseqDropout) else part
    vars(made).update(parts)
    vars(made).pop("forward", None)  # with checkpointed activations it is the original's
    return made


class _Positions:
    """Embeddings of positions by a number on the device."""

    def __init__(self, module: nn.Module, arena: Arena):
        self._module, self._arena = module, arena
        self._table: Tensor | None = None

    def refresh(self, positions: int) -> None:
        parameter = next(iter(self._module.parameters()), None)
        device = (self._module.weights if parameter is None else parameter).device
        words = torch.full((1, positions), self._module.padding_idx + 1, device=device)
        embedded = self._module(words)[0]
        self._table = self._arena.view("embedded positions", embedded.dtype, *embedded.shape)
        self._table.copy_(embedded)

    def __call__(self, tokens: Tensor, incremental_state: State) -> Tensor:
        """(1, 1, C)."""
        return self._table.index_select(0, incremental_state.step)[None]


class _Joined:
    """The function x ↦ xWᵀ + b of linear layers whose outputs stand side by side."""

    def __init__(self, *layers: nn.Linear):
        self._layers = layers
        self._weight = torch.cat([layer.weight.detach() for layer in layers])
        self._bias = torch.cat(self._biases())

    def refresh(self) -> None:
        torch.cat([layer.weight.detach() for layer in self._layers], out=self._weight)
        torch.cat(self._biases(), out=self._bias)

    def _biases(self) -> list[Tensor]:
        return [
            layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach()
            for layer in self._layers
        ]

    def __call__(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self._weight, self._bias)


class _Attention:
    """What both kinds of attention share.

    Args:
        attention: the layer's.
        layer: its number.
        layers: the projections that are computed together.
    """

    def __init__(self, attention: nn.Module, layer: int, *layers: nn.Linear):
        self.attention, self._layer = attention, layer
        self.joined = _Joined(*layers)
        alpha = attention.alpha()
        self._alpha = torch.empty_like(alpha, dtype=torch.float64, device=attention.q_proj.weight.device)

    def refresh(self) -> None:
        """Copy what has been trained since."""
        self.joined.refresh()
        alpha = self.attention.alpha.value()
        if isinstance(alpha, Tensor):
            self._alpha.copy_(alpha)
        else:
            self._alpha.fill_(alpha)

    def _queries(self, projected: Tensor, x: Tensor, keys: Tensor) -> Tensor:
        """(R, H, 1, D) of projections (R, C) of x (1, R, C), scaled by the number of keys if so set."""
        queries = projected.unflatten(1, (self.attention.num_heads, -1)).unsqueeze(2)
        scaling = self.attention.length_scaling
        return queries if scaling is None else scaling(queries, x, keys)

    def _attend(
        self, queries: Tensor, both: Tensor, mask: Tensor, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """(1, R, C) and, if needed, weights (H, R, 1, S), as fairseq's layers return them.

        Args:
            queries: (B, H, T, D), with R = B·T.
            both: keys and values (B, S, 2·C).
            mask: padding (B, S).
            need_weights: see above.
        """
        attention = self.attention
        keys, values = both.view(*both.shape[:2], 2, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        inputs = AttentionInputs(queries, keys, values, self._alpha, mask, need_weights=need_weights)
        fused = attention.backend != "dense" and need_weights  # which keeps none
        output, weights = attention.normalizer(inputs, "auto" if fused else attention.backend)
        output = output.transpose(1, 2).reshape(1, -1, attention.embed_dim)
        if attention.gated_norm is not None:
            output = attention.gated_norm(output)
        if weights is not None:
            weights = weights.transpose(0, 1).flatten(1, 2).unsqueeze(2)
        return attention.out_proj(output), weights

    def _get_input_buffer(self, incremental_state: State) -> None:
        """Called by fairseq's layers; the caches are in the state."""


class _SelfAttention(_Attention):
    """Attention of single positions to those of the translation so far."""

    def __init__(self, attention: nn.Module, layer: int):
        super().__init__(attention, layer, attention.q_proj, attention.k_proj, attention.v_proj)

    def __call__(self, query: Tensor, incremental_state: State, **_: object) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C), without weights."""
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

    def __init__(self, attention: nn.Module, layer: int):
        super().__init__(attention, layer, attention.k_proj, attention.v_proj)

    def __call__(
        self, query: Tensor, incremental_state: State, need_head_weights: bool = False, **_: object
    ) -> tuple[Tensor, Tensor | None]:
        """(1, R, C) → (1, R, C), and weights (H, R, 1, S) if they are needed and kept."""
        state = incremental_state
        needed = need_head_weights and state.attention is not None
        queries = self._queries(self.attention.q_proj(query[0]), query, state.visible)
        queries = queries.squeeze(2).unflatten(0, (-1, state.beam)).transpose(1, 2)
        return self._attend(queries, state.context[self._layer], state.mask, needed)
