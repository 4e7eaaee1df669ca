"""The model's decoder one position at a time, on tensors of fixed shapes and without reading one of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention import AttentionInputs
from .device_state import Arena, State
from .parts import with_parts


class DeviceDecoder:
    """The model's decoder, in evaluation mode, with memory of fixed addresses in an arena.

    The parameters that it does not copy it uses where they are.

    Args:
        decoder: the model's.
        number: of the model.
        first: number of its first layer, where states count those of all models.
        arena: for the embeddings of positions.
    """

    def __init__(self, decoder: nn.Module, number: int, first: int, arena: Arena):
        self._layers = [
            with_parts(
                layer,
                self_attn=_SelfAttention(layer.self_attn, layer_number),
                encoder_attn=_ContextAttention(layer.encoder_attn, layer_number, number),
            )
            for layer_number, layer in enumerate(decoder.layers, first)
        ]
        positions = decoder.embed_positions
        self._positions = None
        if positions is not None:
            self._positions = _Positions(positions, f"embedded positions {number}", arena)
        self._decoder = with_parts(
            decoder,
            layers=[layer.forward for layer in self._layers],
            embed_positions=self._positions,
        )

    def refresh(self, positions: int) -> None:
        """Copy what is computed from parameters, which may have changed, and is the same in all steps.

        Args:
            positions: how many there may be.
        """
        for layer in self._layers:
            layer.self_attn.refresh()
            layer.encoder_attn.refresh()
        if self._positions is not None:
            self._positions.refresh(positions)

    def context(self, encoded: Tensor) -> list[Tensor]:
        """By layer, keys and values (B, S, 2·C) of encoded sentences (S, B, C)."""
        return [layer.encoder_attn.keys(encoded).transpose(0, 1) for layer in self._layers]

    def step(self, state: State) -> Tensor:
        """Scores of all symbols at the next position (R, V), before softmax."""
        encoder_out = {
            "encoder_out": [state.context[0]],  # of which layers ask only whether it is there
            "encoder_padding_mask": [],
            "src_tokens": [state.source],
        }
        features, extra = self._decoder.extract_features(state.tokens.view(-1, 1), encoder_out, state)
        return self._decoder.outputs(features, extra, encoder_out, state)[:, 0]


class _Positions:
    """Embeddings of positions by a number on the device."""

    def __init__(self, module: nn.Module, name: str, arena: Arena):
        self._module, self._name, self._arena = module, name, arena
        self._table: Tensor | None = None

    def refresh(self, positions: int) -> None:
        parameter = next(iter(self._module.parameters()), None)
        device = (self._module.weights if parameter is None else parameter).device
        words = torch.full((1, positions), self._module.padding_idx + 1, device=device)
        embedded = self._module(words)[0]
        self._table = self._arena.view(self._name, embedded.dtype, *embedded.shape)
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
        layer: its number in states.
        joined: the projections that are computed together.
    """

    def __init__(self, attention: nn.Module, layer: int, *joined: nn.Linear):
        self.attention, self.layer = attention, layer
        self._joined = _Joined(*joined)
        alpha = attention.alpha()
        self._alpha = torch.empty_like(alpha, dtype=torch.float64, device=attention.q_proj.weight.device)

    def refresh(self) -> None:
        """Copy what has been trained since."""
        self._joined.refresh()
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

    def _attend(self, queries: Tensor, both: Tensor, mask: Tensor) -> Tensor:
        """(1, R, C) of queries (B, H, T, D), keys and values (B, S, 2·C) and padding (B, S); R = B·T."""
        attention = self.attention
        keys, values = both.view(*both.shape[:2], 2, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        inputs = AttentionInputs(queries, keys, values, self._alpha, mask)
        output, _ = attention.normalizer(inputs, attention.backend)
        output = output.transpose(1, 2).reshape(1, -1, attention.embed_dim)
        if attention.gated_norm is not None:
            output = attention.gated_norm(output)
        return attention.out_proj(output)

    def _get_input_buffer(self, incremental_state: State) -> None:
        """Called by fairseq's layers; the caches are in the state."""


class _SelfAttention(_Attention):
    """Attention of single positions to those of the translation so far."""

    def __init__(self, attention: nn.Module, layer: int):
        super().__init__(attention, layer, attention.q_proj, attention.k_proj, attention.v_proj)

    def __call__(self, query: Tensor, incremental_state: State, **_: object) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C)."""
        state, channels = incremental_state, query.size(2)
        rows = self._joined(query[0])
        cache = state.caches[self.layer]
        cache.index_copy_(0, state.step, rows[None, :, channels:])
        both = cache.flatten(0, 1).index_select(0, state.places.flatten()).view_as(cache).transpose(0, 1)
        later = (state.positions > state.step).expand(state.rows, -1).contiguous()
        queries = self._queries(rows[:, :channels], query, (state.step + 1)[:, None].float())
        return self._attend(queries, both, later), None


class _ContextAttention(_Attention):
    """Attention to the source, whose keys and values all hypotheses of a sentence share."""

    def __init__(self, attention: nn.Module, layer: int, model: int):
        super().__init__(attention, layer, attention.k_proj, attention.v_proj)
        self.keys, self._model = self._joined, model

    def __call__(self, query: Tensor, incremental_state: State, **_: object) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C)."""
        state = incremental_state
        queries = self._queries(self.attention.q_proj(query[0]), query, state.visible[self._model])
        queries = queries.squeeze(2).unflatten(0, (-1, state.beam)).transpose(1, 2)
        return self._attend(queries, state.context[self.layer], state.masks[self._model]), None
