"""The model's encoder without padding, and its decoder one position at a time, with caches never copied."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..attention.inputs import AttentionInputs
from .cpu_steps import Cache, attend
from .parts import SumNorm, search_layer, with_parts
from .products import Product


@dataclass
class Memory:
    """Encoded sentences without padding.

    Attributes:
        rows: (N, C), the sentences' tokens one after the other.
        places: int32 (B, S), the rows of each sentence, in order.
        counts: int32 (B,), how many there are.
    """

    rows: Tensor
    places: Tensor
    counts: Tensor


class EncoderPass:
    """The model's encoder, in evaluation mode; padding takes no time.

    Args:
        encoder: the model's.
        product: how linear layers are computed.
    """

    def __init__(self, encoder: nn.Module, product: type[Product]):
        self._encoder, self._last = encoder, SumNorm(encoder.layer_norm)
        self._layers = [
            search_layer(layer, product, self_attn=_PackedAttention(layer.self_attn, product))
            for layer in encoder.layers
        ]

    def __call__(self, tokens: Tensor) -> Memory:
        """Encode sentences (B, S), padded on either side."""
        encoder = self._encoder
        seen, given = encoder.embedded(tokens)
        there = seen.ne(encoder.padding_idx)
        embedded, _ = encoder.forward_embedding(seen, given)
        rows, padding = embedded[there], _Padding(there)
        for layer in self._layers:
            rows = layer(rows, padding)
        rows = self._last(rows)
        counts = there.sum(1)
        columns = torch.arange(int(counts.max()), dtype=torch.int32)
        places = (counts.cumsum(0) - counts).to(torch.int32)[:, None] + columns
        return Memory(rows, places, counts.to(torch.int32))


class _Padding:
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


class _PackedAttention:
    """Self-attention of sentences without padding, in the place of an encoder layer's.

    Args:
        attention: the layer's.
        product: how linear layers are computed.
    """

    def __init__(self, attention: nn.Module, product: type[Product]):
        self.attention = attention
        self.projections = product(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = product(attention.out_proj)

    def __call__(self, query: Tensor, key_padding_mask: _Padding, **_: object) -> tuple[Tensor, None]:
        """(N, C) → (N, C)."""
        attention, padding = self.attention, key_padding_mask
        rows = self.projections(query)
        if attention.length_scaling is not None:
            queries = rows[:, : query.size(1)]
            queries.copy_(_scaled(queries, attention, query, padding.keys()))
        heads = padding.add(rows).view(*padding.shape, 3, attention.num_heads, attention.head_dim)
        q, k, v = heads.permute(2, 1, 3, 0, 4)
        result, _ = attention.normalizer(
            AttentionInputs(q, k, v, attention.alpha.value(), padding.mask), "auto"
        )
        return self.out(padding.remove(result.permute(2, 0, 1, 3).flatten(2))), None


def _scaled(queries: Tensor, attention: nn.Module, x: Tensor, keys: Tensor) -> Tensor:
    """Queries (R, C) of x (R, C), scaled by the number of keys that they see (R or 1, 1)."""
    scale = attention.length_scaling.scale(x, keys.float())
    return (queries.unflatten(1, (attention.num_heads, -1)) * scale[:, :, None]).flatten(1)


@dataclass
class State:
    """Hypotheses half-way: caches, and where each hypothesis finds its own rows in them.

    A step adds a slab of keys and values to each layer, a row per hypothesis. No row is ever moved or copied:
    when hypotheses are reordered, ``places`` is.

    Attributes:
        context: by layer, keys and values of the source (N, 2·C).
        memory: where the rows of each sentence lie in ``context``.
        slabs: by layer, keys and values (R, 2·C) of each position.
        places: int32 (R, positions), the row of each hypothesis in the slab of each position.
        sentences: int32 (R,), the sentence of each hypothesis.
    """

    context: list[Tensor]
    memory: Memory
    slabs: list[list[Tensor]]
    places: Tensor
    sentences: Tensor

    def source(self, layer: int) -> Cache:
        """Keys and values of the source."""
        places, counts = self.memory.places, self.memory.counts
        return Cache([self.context[layer]], places, counts, self.sentences, places.size(1), single=True)

    def history(self, layer: int) -> Cache:
        """Keys and values of the translations so far."""
        return Cache(self.slabs[layer], self.places, None, None, self.places.size(1), single=False)

    def reorder(self, order: Tensor) -> None:
        """Let hypothesis i continue hypothesis ``order[i]``, int64 (R′,)."""
        self.sentences = self.sentences[order]
        self.places = self.places[order]


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
                self_attn=_CachedAttention(layer.self_attn, product, number),
                encoder_attn=_CachedAttention(layer.encoder_attn, product, number),
            )
            for number, layer in enumerate(decoder.layers)
        ]
        self._decoder = with_parts(
            decoder, layers=[layer.forward for layer in self._layers], layer_norm=SumNorm(decoder.layer_norm)
        )
        self.output = product(decoder.output_projection)

    def start(self, memory: Memory) -> State:
        """One empty hypothesis for each sentence."""
        sentences = torch.arange(len(memory.counts), dtype=torch.int32)
        context = [layer.encoder_attn.keys(memory.rows) for layer in self._layers]
        places = torch.empty(len(sentences), 0, dtype=torch.int32)
        return State(context, memory, [[] for _ in self._layers], places, sentences)

    def step(self, state: State, tokens: Tensor) -> Tensor:
        """Features (R, C) at the next position, after the tokens (R, T)."""
        own = torch.arange(len(tokens), dtype=torch.int32)
        state.places = torch.cat([state.places, own[:, None]], dim=1)
        encoder_out = {"encoder_out": [state.memory.rows], "encoder_padding_mask": []}
        features, _ = self._decoder.extract_features(tokens, encoder_out, state)
        return features[:, 0]


class _CachedAttention:
    """Attention of single positions to cached keys, in the place of a decoder layer's.

    Args:
        attention: the layer's.
        product: how linear layers are computed.
        layer: its number.
    """

    def __init__(self, attention: nn.Module, product: type[Product], layer: int):
        self.attention, self.layer = attention, layer
        self.query, self.out = product(attention.q_proj), product(attention.out_proj)
        self.keys = product(attention.k_proj, attention.v_proj)
        alpha = attention.alpha().detach().flatten().to(torch.float64)
        self.alpha = alpha.expand(attention.num_heads).contiguous()  # of each head

    def __call__(
        self, query: Tensor, incremental_state: State, static_kv: bool = False, **_: object
    ) -> tuple[Tensor, None]:
        """(1, R, C) → (1, R, C): of the translations themselves, or to the source if ``static_kv``."""
        x = query[0]
        if static_kv:
            cache = incremental_state.source(self.layer)
        else:
            incremental_state.slabs[self.layer].append(self.keys(x))
            cache = incremental_state.history(self.layer)
        queries = self.query(x)
        if self.attention.length_scaling is not None:
            queries = _scaled(queries, self.attention, x, cache.keys())
        return self.out(attend(queries, cache, self.alpha))[None], None

    def _get_input_buffer(self, incremental_state: State) -> None:
        """Called by fairseq's layers; the caches are in the state."""
