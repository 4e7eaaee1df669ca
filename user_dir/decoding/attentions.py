"""Attention without padding in the encoder, and of single positions to cached keys in the decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention.inputs import AttentionInputs
from ..attention.normalizers.alpha_entmax import AlphaEntmax
from .cpu_steps import Cache, attend
from .products import Product
from .state import State


class Padding:
    """Adds padding to rows without, and takes it away.

    Args:
        there: (B, S), false at padding.
    """

    def __init__(self, there: Tensor):
        sentence, position = there.nonzero(as_tuple=True)
        self.shape = there.shape[::-1]  # (S, B), as the attention kernels lay out what they return
        self.mask = None if bool(there.all()) else ~there
        self._there, self._sentence = there, sentence
        self._at = position * len(there) + sentence
        self._padded: Tensor | None = None

    def add(self, rows: Tensor) -> Tensor:
        """(N, C) → (S, B, C). Overwrites what it returned before."""
        if self._padded is None:
            self._padded = rows.new_zeros(self.shape.numel(), rows.size(1))
        return self._padded.index_copy_(0, self._at, rows).view(*self.shape, -1)

    def keys(self) -> Tensor:
        """How many keys each row sees, the tokens of its sentence: (N, 1)."""
        return self._there.sum(1)[self._sentence, None]

    def remove(self, padded: Tensor) -> Tensor:
        """(S, B, C) → (N, C)."""
        return padded.flatten(0, 1).index_select(0, self._at)


class _Attention:
    """What both have in common.

    Args:
        attention: the layer's.
        product: how linear layers are computed.
    """

    def __init__(self, attention: nn.Module, product: type[Product]):
        self.attention = attention
        self._out = product(attention.out_proj)

    def scaled(self, queries: Tensor, x: Tensor, keys: Tensor) -> Tensor:
        """Queries (R, C) of x (R, C), scaled by the number of keys that they see (R or 1, 1)."""
        scale = self.attention.length_scaling.scale(x, keys.float())
        return (queries.unflatten(1, (self.attention.num_heads, -1)) * scale[:, :, None]).flatten(1)

    def out(self, heads: Tensor) -> Tensor:
        """The output (R, C) of the outputs of all heads, side by side (R, C)."""
        norm = self.attention.gated_norm
        return self._out(heads if norm is None else norm(heads))


class PackedAttention(_Attention):
    """Self-attention of sentences without padding, in the place of an encoder layer's."""

    def __init__(self, attention: nn.Module, product: type[Product]):
        super().__init__(attention, product)
        self._projections = product(attention.q_proj, attention.k_proj, attention.v_proj)

    def __call__(self, query: Tensor, key_padding_mask: Padding, **_: object) -> tuple[Tensor, None]:
        """(N, C) → (N, C)."""
        attention, padding = self.attention, key_padding_mask
        rows = self._projections(query)
        if attention.length_scaling is not None:
            queries = rows[:, : query.size(1)]
            queries.copy_(self.scaled(queries, query, padding.keys()))
        heads = padding.add(rows).view(*padding.shape, 3, attention.num_heads, attention.head_dim)
        q, k, v = heads.permute(2, 1, 3, 0, 4)
        result, _ = attention.normalizer(
            AttentionInputs(q, k, v, attention.alpha.value(), padding.mask), "auto"
        )
        return self.out(padding.remove(result.permute(2, 0, 1, 3).flatten(2))), None


class CachedAttention(_Attention):
    """Attention of single positions to cached keys, in the place of a decoder layer's.

    α-entmax is computed where the keys lie; other normalizers are called, with copies of them.

    Args:
        attention: the layer's.
        product: how linear layers are computed.
        layer: its number.
    """

    def __init__(self, attention: nn.Module, product: type[Product], layer: int):
        super().__init__(attention, product)
        self._layer = layer
        query, *keys = attention.q_proj, attention.k_proj, attention.v_proj
        if attention.self_attention:
            self._projections = product(query, *keys)
        else:
            self._query, self.keys = product(query), product(*keys)
        self._is_entmax = type(attention.normalizer).forward is AlphaEntmax.forward
        alpha = attention.alpha().detach().flatten().to(torch.float64)
        self._alpha = alpha.expand(attention.num_heads).contiguous()  # of each head

    def __call__(
        self,
        query: Tensor,
        incremental_state: State,
        static_kv: bool = False,
        need_weights: bool = False,
        **_: object,
    ) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C): of the translations themselves, or to the source if ``static_kv``.

        If they are needed, the weights (R, S), mean over heads, are left in the state.
        """
        x, state = query[0], incremental_state
        if static_kv:
            queries, cache = self._query(x), state.source(self._layer)
        else:
            rows = self._projections(x)
            queries, keys = rows[:, : x.size(1)], rows[:, x.size(1) :]
            state.slabs[self._layer].append(keys)
            cache = state.history(self._layer)
        if self.attention.length_scaling is not None:
            queries = self.scaled(queries, x, cache.keys())
        needed = need_weights and state.attention is not None
        if self._is_entmax:
            heads, weights = attend(queries, cache, self._alpha, need_weights=needed)
        else:
            heads, weights = self._normalised(queries, cache, needed)
        if weights is not None:
            state.attention.append(weights.mean(1))
        return self.out(heads)[None], None

    def _normalised(self, queries: Tensor, cache: Cache, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """As :func:`.cpu_steps.attend`, by the normalizer; hypotheses of a sentence are its queries."""
        attention = self.attention
        keys, mask = cache.gathered()
        sides = len(keys), -1, attention.num_heads, attention.head_dim
        q = queries.view(*sides).transpose(1, 2)  # (B, H, K, D)
        k, v = (side.view(*sides).transpose(1, 2) for side in keys.chunk(2, dim=2))
        inputs = AttentionInputs(q, k, v, attention.alpha.value(), mask, need_weights=need_weights)
        output, weights = attention.normalizer(inputs, "auto")
        if weights is not None:
            weights = weights.transpose(1, 2).flatten(0, 1)
        return output.transpose(1, 2).reshape(queries.shape), weights

    def _get_input_buffer(self, incremental_state: State) -> None:
        """Called by fairseq's layers; the caches are in the state."""
