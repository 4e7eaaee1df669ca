"""The weights of a model of ours for the search in C++, if it knows all that the model computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from fairseq.utils import get_activation_fn
from torch import Tensor, nn

from ..attention.normalizers.alpha_entmax import AlphaEntmax
from ..attention.normalizers.rela import ReLA
from ..models.sides import AdaptivelySparseDecoder, AdaptivelySparseEncoder
from .weights import ACTIVATIONS, Attention, Layer, Linear, Norm, Side, Weights


def not_native(model: nn.Module) -> str | None:
    """Why Python is to go through the layers of a model that our search knows; None if C++ can."""
    sides = model.encoder, model.decoder
    if tuple(map(type, sides)) != (AdaptivelySparseEncoder, AdaptivelySparseDecoder):
        return "encoder or decoder have parts of their own"
    for side in sides:
        kinds = type(None), LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
        if type(side.embed_positions) not in kinds or side.embed_tokens.max_norm is not None:
            return "embeddings are not the usual ones"
        if not all(layer.activation_fn in _ACTIVATIONS for layer in side.layers):
            return "the activation is neither ReLU nor GELU"
    for layers in model.attentions().values():
        for attention in layers:
            kind = type(attention.normalizer)
            if kind.forward is not AlphaEntmax.forward and kind is not ReLA:
                return "attention is neither α-entmax nor ReLA"
            if (attention.gated_norm is None) == (kind is ReLA):
                return "attention scales outputs"
    return None


_ACTIVATIONS = {get_activation_fn(name): name for name in ACTIVATIONS}


def weights_of(model: nn.Module) -> Weights:
    """The weights of a model for which :func:`not_native` gives no reason."""
    encoder, decoder = model.encoder, model.decoder
    return Weights(
        encoder=_side(encoder, None),
        decoder=_side(decoder, decoder.project_in_dim),
        projection_out=_linear(decoder.project_out_dim),
        output=_linear(decoder.output_projection),
        output_alpha=decoder.output_normalizer.alpha(),
    )


def _side(side: nn.Module, projection: nn.Linear | None) -> Side:
    first, positions = side.layers[0], side.embed_positions
    return Side(
        embeddings=_array(side.embed_tokens.weight),
        scale=side.embed_scale,
        projection_in=_linear(projection),
        positions=_positions(positions),
        embedding_norm=_norm(side.layernorm_embedding),
        layers=[_layer(side.layers[i]) for i in range(len(side.layers))],  # iterating may drop some
        pre_norm=first.normalize_before,
        activation=_ACTIVATIONS[first.activation_fn],
        norm=_norm(side.layer_norm),
    )


def _positions(positions: nn.Module | None) -> np.ndarray | Callable[[int], np.ndarray] | None:
    if isinstance(positions, LearnedPositionalEmbedding):
        return _array(positions.weight)[positions.padding_idx + 1 :]
    if positions is None:
        return None
    width, padding = positions.embedding_dim, positions.padding_idx
    return lambda count: _array(positions.get_embedding(padding + 1 + count, width, padding))[padding + 1 :]


def _layer(layer: nn.Module) -> Layer:
    context = getattr(layer, "encoder_attn", None)
    return Layer(
        attention=_attention(layer.self_attn),
        attention_norm=_norm(layer.self_attn_layer_norm),
        context=None if context is None else _attention(context),
        context_norm=None if context is None else _norm(layer.encoder_attn_layer_norm),
        fc1=_linear(layer.fc1),
        fc2=_linear(layer.fc2),
        final_norm=_norm(layer.final_layer_norm),
    )


def _attention(attention: nn.Module) -> Attention:
    projections = attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj
    alpha = _array(attention.alpha().flatten().double().expand(attention.num_heads))
    scaling, norm = attention.length_scaling, attention.gated_norm
    return Attention(
        *map(_linear, projections),
        alpha,
        None if scaling is None else (_linear(scaling.beta), _linear(scaling.gamma)),
        None if norm is None else (_array(norm.scale), _array(norm.gate)),
    )


def _linear(layer: nn.Linear | None) -> Linear | None:
    if layer is None:
        return None
    return Linear(_array(layer.weight), None if layer.bias is None else _array(layer.bias))


def _norm(norm: nn.LayerNorm | None) -> Norm | None:
    return None if norm is None else Norm(_array(norm.weight), _array(norm.bias), norm.eps)


def _array(parameter: Tensor) -> np.ndarray:
    return parameter.detach().numpy()
