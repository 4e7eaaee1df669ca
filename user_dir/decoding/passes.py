"""The model's layers, for translation: the encoder without padding, the decoder one position at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ..attention.inputs import AttentionInputs
from .cpu_steps import Cache, add_norm, attend
from .products import Product

Sublayer = Callable[[Tensor], Tensor]
"""What a residual connection leads around: (R, C) → (R, C)."""


class Residual:
    """Sublayers, each with its residual connection and LayerNorm, before the sublayer or after the sum.

    Args:
        norms: the LayerNorm of each sublayer.
        last: the LayerNorm after all; None without.
        before: pre-norm.
    """

    def __init__(self, norms: Sequence[nn.LayerNorm], last: nn.LayerNorm | None, before: bool):
        self._norms, self._last, self._before = norms, last, before

    def __call__(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """Apply all sublayers to x (R, C), which is changed."""
        if self._before:
            following = [*self._norms[1:], self._last]
            y = add_norm(x, None, self._norms[0], keep=False)
        else:
            following = list(self._norms)
            y = x
        for sublayer, norm in zip(sublayers, following):
            update = sublayer(y)
            if norm is None:
                return x.add_(update)
            y = add_norm(x, update, norm, keep=self._before)
            x = x if self._before else y
        return y if self._before or self._last is None else add_norm(y, None, self._last, keep=False)


class FeedForward:
    """fc₂(f(fc₁(x))) of one of fairseq's layers."""

    def __init__(self, layer: nn.Module, product: type[Product]):
        relu = layer.activation_fn is nn.functional.relu
        self._first = product(layer.fc1, relu=relu)
        self._activation = None if relu else layer.activation_fn
        self._second = product(layer.fc2)

    def __call__(self, x: Tensor) -> Tensor:
        """(R, C) → (R, C)."""
        hidden = self._first(x)
        return self._second(hidden if self._activation is None else self._activation(hidden))


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
    """fairseq's Transformer encoder with our attention, in evaluation mode; padding takes no time.

    Args:
        encoder: the model's.
        product: how linear layers are computed.
    """

    def __init__(self, encoder: nn.Module, product: type[Product]):
        self._encoder = encoder
        layers = list(encoder.layers)
        norms = [norm for layer in layers for norm in (layer.self_attn_layer_norm, layer.final_layer_norm)]
        self._residual = Residual(norms, encoder.layer_norm, layers[0].normalize_before)
        self._layers = [
            (
                product(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                layer.self_attn,
                product(layer.self_attn.out_proj),
                FeedForward(layer, product),
            )
            for layer in layers
        ]

    def __call__(self, tokens: Tensor) -> Memory:
        """Encode sentences (B, S), padded on either side."""
        seen, given = self._encoder.embedded(tokens)
        there = seen.ne(self._encoder.padding_idx)
        embedded, _ = self._encoder.forward_embedding(seen, given)
        padding = _Padding(there)
        sublayers: list[Sublayer] = []
        for qkv, module, out, feed_forward in self._layers:
            sublayers += [partial(_attention, qkv, module, out, padding), feed_forward]
        rows = self._residual(embedded[there], sublayers)
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


def _attention(qkv: Product, module: nn.Module, out: Product, padding: _Padding, x: Tensor) -> Tensor:
    """Self-attention of encoded sentences (N, C)."""
    rows = qkv(x)
    if module.length_scaling is not None:
        queries = rows[:, : x.size(1)]
        queries.copy_(_scaled(queries, module, x, padding.keys()))
    heads = padding.add(rows).view(*padding.shape, 3, module.num_heads, module.head_dim)
    query, key, value = heads.permute(2, 1, 3, 0, 4)
    result, _ = module.normalizer(
        AttentionInputs(query, key, value, module.alpha.value(), padding.mask), "auto"
    )
    return out(padding.remove(result.permute(2, 0, 1, 3).flatten(2)))


def _scaled(queries: Tensor, module: nn.Module, x: Tensor, keys: Tensor) -> Tensor:
    """Queries (R, C) of x (R, C), scaled by the number of keys that they see (R or 1, 1)."""
    scale = module.length_scaling.scale(x, keys.float())
    return (queries.unflatten(1, (module.num_heads, -1)) * scale[:, :, None]).flatten(1)


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

    def reorder(self, order: Tensor) -> None:
        """Let hypothesis i continue hypothesis ``order[i]``, int64 (R′,)."""
        self.sentences = self.sentences[order]
        self.places = self.places[order]


class DecoderPass:
    """fairseq's Transformer decoder with our attention, in evaluation mode, one position at a time.

    Args:
        decoder: the model's.
        product: how linear layers are computed.
    """

    def __init__(self, decoder: nn.Module, product: type[Product]):
        self._decoder = decoder
        layers = list(decoder.layers)
        norms = [
            norm
            for layer in layers
            for norm in (layer.self_attn_layer_norm, layer.encoder_attn_layer_norm, layer.final_layer_norm)
        ]
        self._residual = Residual(norms, decoder.layer_norm, layers[0].normalize_before)
        self._layers = [_DecoderLayer(layer, product) for layer in layers]
        self.output = product(decoder.output_projection)

    def start(self, memory: Memory) -> State:
        """One empty hypothesis for each sentence."""
        sentences = torch.arange(len(memory.counts), dtype=torch.int32)
        context = [layer.context_keys(memory.rows) for layer in self._layers]
        places = torch.empty(len(sentences), 0, dtype=torch.int32)
        return State(context, memory, [[] for _ in self._layers], places, sentences)

    def step(self, state: State, tokens: Tensor) -> Tensor:
        """Features (R, C) at the next position, after the tokens (R,) there."""
        own = torch.arange(len(tokens), dtype=torch.int32)
        state.places = torch.cat([state.places, own[:, None]], dim=1)
        length, memory = state.places.size(1), state.memory
        sublayers: list[Sublayer] = []
        for layer, slabs, context in zip(self._layers, state.slabs, state.context):
            history = Cache(slabs, state.places, None, None, length, single=False)
            source = Cache(
                [context], memory.places, memory.counts, state.sentences, memory.places.size(1), single=True
            )
            sublayers += layer.sublayers(history, slabs, source)
        return self._residual(self._embed(tokens, length), sublayers)

    def _embed(self, tokens: Tensor, length: int) -> Tensor:
        decoder = self._decoder
        x = decoder.embed_scale * decoder.embed_tokens(tokens)
        if decoder.embed_positions is not None:
            # no token is padding, so all hypotheses are at the same position
            some = torch.full((1, length), decoder.padding_idx + 1)
            x += decoder.embed_positions(some, incremental_state={})[:, -1]
        return x if decoder.layernorm_embedding is None else decoder.layernorm_embedding(x)


class _DecoderLayer:
    def __init__(self, layer: nn.Module, product: type[Product]):
        self._own, self._context = own, context = layer.self_attn, layer.encoder_attn
        self._query, self._out = product(own.q_proj), product(own.out_proj)
        self._keys = product(own.k_proj, own.v_proj)
        self._alpha = _alphas(own)
        self._context_query, self._context_out = product(context.q_proj), product(context.out_proj)
        self.context_keys = product(context.k_proj, context.v_proj)
        self._context_alpha = _alphas(context)
        self._feed_forward = FeedForward(layer, product)

    def sublayers(self, history: Cache, slabs: list[Tensor], source: Cache) -> list[Sublayer]:
        """The layer at one position.

        Args:
            history: keys and values of the translations so far.
            slabs: where those of this position are put.
            source: keys and values of the source.
        """

        def own(x: Tensor) -> Tensor:
            slabs.append(self._keys(x))
            return self._out(_attend(self._query(x), self._own, x, history, self._alpha))

        def context(x: Tensor) -> Tensor:
            query = self._context_query(x)
            return self._context_out(_attend(query, self._context, x, source, self._context_alpha))

        return [own, context, self._feed_forward]


def _attend(queries: Tensor, module: nn.Module, x: Tensor, cache: Cache, alpha: Tensor) -> Tensor:
    """Attention of queries (R, C) of x (R, C), one position each, to cached keys."""
    if module.length_scaling is not None:
        queries = _scaled(queries, module, x, cache.keys())
    return attend(queries, cache, alpha)


def _alphas(module: nn.Module) -> Tensor:
    """α of each head of an attention module, float64 (H,)."""
    return module.alpha().detach().flatten().to(torch.float64).expand(module.num_heads).contiguous()
