"""The weights of a model of ours as the search in C++ reads them (``model.h``)."""

from __future__ import annotations

import ctypes

import torch
from fairseq.modules import LearnedPositionalEmbedding
from fairseq.utils import get_activation_fn
from torch import Tensor, nn

from ..entmax.native import INTEGER, POINTER, addresses
from ..models.layers import layers_of
from .native import REAL, kernels, structure

ACTIVATIONS = {get_activation_fn(name): name for name in ("relu", "gelu")}
"""The activations that the search knows."""

Packed = structure(
    "Packed",
    **dict.fromkeys(("inputs", "outputs"), INTEGER),
    **dict.fromkeys(("panels", "scales", "bias"), POINTER),
    instructions=INTEGER,
)
_Norm = structure("Norm", weight=POINTER, bias=POINTER, eps=REAL)
_Heads = structure(
    "Heads",
    **dict.fromkeys(("queries", "keys", "out", "scaling", "alpha", "norm_scale", "norm_gate"), POINTER),
    count=INTEGER,
)
_Layer = structure(
    "Layer",
    **dict.fromkeys(("own", "context"), _Heads),
    **dict.fromkeys(("own_norm", "context_norm", "final_norm"), _Norm),
    **dict.fromkeys(("fc1", "fc2"), POINTER),
)
_Side = structure(
    "Side",
    embeddings=POINTER,
    scale=REAL,
    projection=POINTER,
    positions=POINTER,
    **dict.fromkeys(("embedding_norm", "norm"), _Norm),
    layers=POINTER,
    **dict.fromkeys(("count", "width", "embedding_width", "pre_norm", "gelu"), INTEGER),
)
_Model = structure(
    "Model",
    **dict.fromkeys(("encoder", "decoder"), _Side),
    **dict.fromkeys(("projection", "output"), POINTER),
    output_alpha=REAL,
)


class PackedLinear:
    """W and b of linear layers x ↦ xWᵀ + b, concatenated along their outputs and laid out for many products.

    Args:
        layers: layers with the same input, float32 or float64; they are copied.
        int8: store W as 8-bit integers, with a scale for each output.

    Attributes:
        packed: the structure that C++ reads; valid as long as this object exists.
    """

    def __init__(self, *layers: nn.Linear, int8: bool = False):
        weight = torch.cat([layer.weight.detach() for layer in layers])
        biases = [layer.bias for layer in layers]
        self._bias = None
        if any(bias is not None for bias in biases):
            zeros = [layer.weight.new_zeros(layer.out_features) for layer in layers]
            biases = [zero if bias is None else bias.detach() for bias, zero in zip(biases, zeros)]
            self._bias = torch.cat(biases)
        outputs, inputs = weight.shape
        size = kernels["packed_bytes", weight.dtype](inputs, outputs, int8)
        self._memory = torch.empty(size + 63, dtype=torch.uint8)
        place = (self._memory.data_ptr() + 63) // 64 * 64  # panels are 64-byte aligned
        self.packed = Packed()
        sizes, packed = (inputs, outputs, int8), ctypes.addressof(self.packed)
        kernels["pack", weight.dtype](*addresses(weight, self._bias), *sizes, place, packed)


class Weights:
    """The weights of a model that :func:`~.generator.can_search` accepts, on a CPU.

    Linear layers are copied; other parameters stay where they are and must not change.

    Args:
        model: float32 or float64 throughout.
        int8: linear layers are computed with 8-bit integers.

    Attributes:
        model: the structure ``Model``; valid as long as this object exists.
        dtype: of the parameters.
        symbols: size of the source vocabulary.
        attends: whether the last layer of the decoder attends to the source.
        longest: the most positions of a source, and of a translation with its end.
    """

    def __init__(self, model: nn.Module, int8: bool = False):
        self._int8, self._kept = int8, []  # what the structures point to
        encoder, decoder = model.encoder, model.decoder
        self.dtype, self.symbols = decoder.output_projection.weight.dtype, encoder.embed_tokens.num_embeddings
        self.attends = decoder.layers[-1].encoder_attn is not None
        self.longest = encoder.max_positions(), decoder.max_positions()
        self.model = _Model(
            self._side(encoder, None),
            self._side(decoder, decoder.project_in_dim),
            self._packed(decoder.project_out_dim),
            self._packed(decoder.output_projection),
            decoder.output_normalizer.alpha(),
        )

    def _side(self, side: nn.Module, projection: nn.Linear | None) -> ctypes.Structure:
        """``projection``: of embeddings to the width of the layers."""
        layers = (_Layer * len(side.layers))(*map(self._layer, layers_of(side)))
        self._kept.append(layers)
        first = side.layers[0]
        return _Side(
            embeddings=self._address(side.embed_tokens.weight),
            scale=side.embed_scale,
            projection=self._packed(projection),
            positions=self._positions(side),
            embedding_norm=self._norm(side.layernorm_embedding),
            norm=self._norm(side.layer_norm),
            layers=ctypes.addressof(layers),
            count=len(layers),
            width=first.embed_dim,
            embedding_width=side.embed_tokens.embedding_dim,
            pre_norm=first.normalize_before,
            gelu=ACTIVATIONS[first.activation_fn] == "gelu",
        )

    def _positions(self, side: nn.Module) -> int | None:
        """The address of the embeddings of all positions."""
        module = side.embed_positions
        if module is None:
            return None
        first = module.padding_idx + 1
        if isinstance(module, LearnedPositionalEmbedding):
            table = module.weight
        else:
            count = first + side.max_positions()
            table = module.get_embedding(count, module.embedding_dim, module.padding_idx)
        return self._address(table[first:].to(self.dtype))

    def _layer(self, layer: nn.Module) -> ctypes.Structure:
        own, context = layer.self_attn, getattr(layer, "encoder_attn", None)
        return _Layer(
            self._heads(own, [own.q_proj, own.k_proj, own.v_proj], []),
            self._heads(context, [context.q_proj], [context.k_proj, context.v_proj]) if context else _Heads(),
            self._norm(layer.self_attn_layer_norm),
            self._norm(layer.encoder_attn_layer_norm if context else None),
            self._norm(layer.final_layer_norm),
            self._packed(layer.fc1),
            self._packed(layer.fc2),
        )

    def _heads(self, attention: nn.Module, queries: list, keys: list) -> ctypes.Structure:
        """``queries``: projections of the input of a block; ``keys``: of the encoder's output."""
        scaling, norm = attention.length_scaling, attention.gated_norm
        packed = [queries, keys, [attention.out_proj], [scaling.beta, scaling.gamma] if scaling else []]
        heads = _Heads(*(self._packed(*layers) for layers in packed), count=attention.num_heads)
        if norm is None:
            alpha = torch.as_tensor(attention.alpha.value(), dtype=torch.float64).expand(heads.count, 1, 1)
            heads.alpha = self._address(alpha)
        else:  # ReLA
            heads.norm_scale, heads.norm_gate = self._address(norm.scale), self._address(norm.gate)
        return heads

    def _norm(self, norm: nn.LayerNorm | None) -> ctypes.Structure:
        if norm is None:
            return _Norm()
        return _Norm(self._address(norm.weight), self._address(norm.bias), norm.eps)

    def _packed(self, *layers: nn.Linear | None) -> int | None:
        """The address of the layers, packed side by side; None without layers."""
        if not layers or layers[0] is None:
            return None
        linear = PackedLinear(*layers, int8=self._int8)
        self._kept.append(linear)
        return ctypes.addressof(linear.packed)

    def _address(self, parameter: Tensor) -> int:
        parameter = parameter.detach().contiguous()
        self._kept.append(parameter)
        return parameter.data_ptr()
