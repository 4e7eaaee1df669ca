"""The model's decoder one position at a time, on tensors of fixed shapes and without reading one of them."""

from __future__ import annotations

from collections.abc import Iterator

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
        caches, sides: the next places in states for what layers keep of translations and of the source.
        arena: for the embeddings of positions.

    Attributes:
        widths: of what is kept of the source, in the order of ``sides``.
        attends: whether the decoder says what it attends to.
    """

    def __init__(
        self, decoder: nn.Module, number: int, caches: Iterator[int], sides: Iterator[int], arena: Arena
    ):
        self._layers = [
            with_parts(
                layer,
                self_attn=_SelfAttention(layer.self_attn, next(caches)),
                encoder_attn=layer.encoder_attn
                and _ContextAttention(layer.encoder_attn, number, next(sides)),
            )
            for layer in decoder.layers
        ]
        self._sides = [layer.encoder_attn for layer in self._layers if layer.encoder_attn]
        alignment = {}
        if hasattr(decoder, "alignment"):
            alignment["alignment"] = _Alignment(decoder.alignment, number, next(sides))
            self._sides += alignment.values()
        self.widths = [side.keys.width for side in self._sides]
        self.attends = bool(alignment or self._layers[-1].encoder_attn)
        positions = decoder.embed_positions
        self._positions = None
        if positions is not None:
            self._positions = _Positions(positions, f"embedded positions {number}", arena)
        self._decoder = with_parts(
            decoder,
            layers=[layer.forward for layer in self._layers],
            embed_positions=self._positions,
            **alignment,
        )

    def refresh(self, positions: int) -> None:
        """Copy what is computed from parameters, which may have changed, and is the same in all steps.

        Args:
            positions: how many there may be.
        """
        for layer in self._layers:
            layer.self_attn.refresh()
        for side in self._sides:
            side.refresh()
        if self._positions is not None:
            self._positions.refresh(positions)

    def context(self, encoded: Tensor) -> list[Tensor]:
        """What is kept of encoded sentences (S, B, C): (B, S, width) each."""
        return [side.keys(encoded).transpose(0, 1) for side in self._sides]

    def step(self, state: State) -> tuple[Tensor, Tensor | None]:
        """Scores of all symbols at the next position (R, V), before softmax; and, if the state keeps it, what
        hypotheses attend to (R, S), mean over heads.
        """
        encoder_out = {
            "encoder_out": [state.source],  # of which layers ask only whether it is there
            "encoder_padding_mask": [],
            "src_tokens": [state.source],
        }
        features, extra = self._decoder.extract_features(state.tokens.view(-1, 1), encoder_out, state)
        scores = self._decoder.outputs(features, extra, encoder_out, state)[:, 0]
        attended = extra["attn"][0]
        return scores, None if attended is None else attended[:, 0]


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
    """The function x ↦ xWᵀ + b of linear layers whose outputs, ``width`` numbers, stand side by side."""

    def __init__(self, *layers: nn.Linear):
        self._layers = layers
        self._weight = torch.cat([layer.weight.detach() for layer in layers])
        self._bias = torch.cat(self._biases())
        self.width = len(self._bias)

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
    """What all kinds of attention share.

    Args:
        attention: the layer's.
        place: in states, of what it keeps.
        joined: the projections that are computed together.
    """

    def __init__(self, attention: nn.Module, place: int, *joined: nn.Linear):
        self.attention, self._place = attention, place
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

    def value(self) -> Tensor:
        """α, where a step finds it."""
        return self._alpha

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

    def __init__(self, attention: nn.Module, place: int):
        super().__init__(attention, place, attention.q_proj, attention.k_proj, attention.v_proj)

    def __call__(self, query: Tensor, incremental_state: State, **_: object) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C), without weights."""
        state, channels = incremental_state, query.size(2)
        rows = self._joined(query[0])
        cache = state.caches[self._place]
        cache.index_copy_(0, state.step, rows[None, :, channels:])
        both = cache.flatten(0, 1).index_select(0, state.places.flatten()).view_as(cache).transpose(0, 1)
        later = (state.positions > state.step).expand(state.rows, -1).contiguous()
        queries = self._queries(rows[:, :channels], query, (state.step + 1)[:, None].float())
        return self._attend(queries, both, later)


class _ContextAttention(_Attention):
    """Attention to the source, whose keys and values all hypotheses of a sentence share."""

    def __init__(self, attention: nn.Module, model: int, place: int):
        super().__init__(attention, place, attention.k_proj, attention.v_proj)
        self.keys, self._model = self._joined, model

    def __call__(
        self, query: Tensor, incremental_state: State, need_head_weights: bool = False, **_: object
    ) -> tuple[Tensor, Tensor | None]:
        """(1, R, C) → (1, R, C), and weights (H, R, 1, S) if they are needed and kept."""
        state = incremental_state
        needed = need_head_weights and state.attention is not None
        queries = self._queries(self.attention.q_proj(query[0]), query, state.visible[self._model])
        queries = queries.squeeze(2).unflatten(0, (-1, state.beam)).transpose(1, 2)
        return self._attend(queries, state.context[self._place], state.masks[self._model], needed)


class _Alignment(_Attention):
    """A latent alignment, with the hypotheses of a sentence as its positions."""

    def __init__(self, alignment: nn.Module, model: int, place: int):
        super().__init__(alignment, place, alignment.k_proj, alignment.source_proj)
        self.keys, self._model = self._joined, model
        self._sizes = [alignment.k_proj.out_features, alignment.source_proj.out_features]
        static = {"alpha": self, "log_probabilities": alignment.log_probabilities_of_all}
        self._alignment = with_parts(alignment, _source=lambda source, _: source, **static)

    def __call__(
        self, x: Tensor, source: Tensor, mask: Tensor, vocabulary: Tensor, state: State
    ) -> tuple[Tensor, Tensor]:
        """(R, 1, C) → (R, 1, V), and what is attended to (R, 1, S)."""
        source = state.context[self._place].split(self._sizes, 2)
        grouped = x.view(-1, state.beam, x.size(2))
        results = self._alignment.forward(grouped, source, state.masks[self._model], vocabulary)
        return tuple(each.flatten(0, 1)[:, None] for each in results)
