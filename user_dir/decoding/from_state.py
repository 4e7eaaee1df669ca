"""The weights of a checkpoint for the search in C++, without torch, if all that it computes is known."""

from __future__ import annotations

import functools
import math
from argparse import Namespace
from collections.abc import Callable, Mapping

import numpy as np

from .weights import ACTIVATIONS, Attention, Layer, Linear, Norm, Side, Weights, sinusoids

PADDING = 1  # the number of the symbol
RELA = "rela"  # instead of the α's of an attention that is ReLA
_MOST_ALPHA = 1000
_VERSION = 3  # of fairseq's encoder and decoder
_MAX_SINUSOIDS = 100_000  # positions that fairseq has of them
_POSITIONS = {"encoder": "max_source_positions", "decoder": "max_target_positions"}

_MODEL = "adaptively_sparse_transformer"
ARCHITECTURES = {_MODEL, *(f"{_MODEL}_{size}" for size in ("tiny", "small", "iwslt_de_en", "wmt_en_de"))}
ARCHITECTURES |= {f"{_MODEL}_wmt_en_de_big"}

_SIDES = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads", "normalize_before", "learned_pos")
_READ = """
activation_fn layernorm_embedding max_source_positions max_target_positions no_cross_attention
no_scale_embedding no_token_positional_embeddings share_all_embeddings share_decoder_input_output_embed
decoder_output_dim
"""
_OFF = """
adaptive_input adaptive_softmax_cutoff base_layers char_inputs cross_self_attention decoder_layers_to_keep
decoder_xformers_att_config encoder_layers_to_keep encoder_xformers_att_config latent_alignment
latent_alignment_alpha latent_alignment_soft latent_alignment_top_k merge_src_tgt_embed
output_alpha_start output_alpha_updates quant_noise_pq quant_noise_scalar scale_attn scale_fc scale_heads
scale_resids tie_adaptive_weights encoder decoder quant_noise
"""
_UNUSED = """
activation_dropout adaptive_softmax_dropout adaptive_softmax_factor alpha_log alpha_log_interval
attention_backend attention_dropout base_shuffle base_sublayers checkpoint_activations cuda_graphs
decoder_embed_path decoder_input_dim decoder_layerdrop dropout encoder_embed_path encoder_layerdrop export
int8 min_params_to_wrap offload_activations quant_noise_pq_block_size relu_dropout tie_adaptive_proj
"""
REQUIRED = {*_READ.split(), *(f"{side}_{name}" for side in ("encoder", "decoder") for name in _SIDES)}
"""Settings that the weights depend on, beside those of α."""
OFF = set(_OFF.split())
"""Settings that must be None, False or 0. The last three would hold others of these."""
UNUSED = set(_UNUSED.split())
"""Settings that translating does not depend on, if the others are off."""


class Unknown(Exception):
    """The message is the reason why it is not known what a checkpoint computes."""


def weights_of_state(
    model: Mapping[str, np.ndarray], settings: Mapping[str, object], alphas: dict
) -> Weights:
    """The weights of a checkpoint, float32; raises :class:`Unknown`.

    Args:
        model: the parameters.
        settings: of the model.
        alphas: by attention type, of each layer the α of each head, or :data:`RELA`; see
            :func:`~.alphas.alphas_of`.
    """
    given = Namespace(**settings)
    check_settings(given)
    parameters = _Parameters(model)
    sides = [_Reader(parameters, side, given, alphas) for side in ("encoder", "decoder")]
    encoder, decoder = (side.read() for side in sides)
    projection, width = None, given.decoder_embed_dim
    if "decoder.project_out_dim.weight" in parameters:
        projection = Linear(parameters.take("decoder.project_out_dim.weight", None, width))
        width = len(projection.weight)
    if str(given.decoder_output_dim) != str(width):  # fairseq may keep it as text
        raise Unknown(f"its decoder_output_dim is {given.decoder_output_dim}")
    symbols = len(decoder.embeddings)
    if given.share_all_embeddings and not _equal(encoder.embeddings, decoder.embeddings):
        raise Unknown("its embeddings are not shared, in spite of share_all_embeddings")
    if given.share_all_embeddings or given.share_decoder_input_output_embed:
        name = "decoder.output_projection.weight"
        if name in parameters and not _equal(parameters.take(name, symbols, width), decoder.embeddings):
            raise Unknown("its output layer is not shared, in spite of share_decoder_input_output_embed")
        output = Linear(decoder.embeddings)
    else:
        output = parameters.linear("decoder.output_projection", symbols, width, bias=False)
    if parameters:
        raise Unknown(f"it has a parameter {next(iter(parameters))}")
    alpha = getattr(given, "output_alpha", None)
    return Weights(encoder, decoder, projection, output, 1.0 if alpha is None else float(alpha))


def max_positions(settings: Mapping[str, object]) -> tuple[int, int]:
    """The most tokens of a source and of a translation, with the settings of a model that is known."""
    most = settings["max_source_positions"], settings["max_target_positions"]
    if settings["no_token_positional_embeddings"]:
        return most
    learned = settings["encoder_learned_pos"], settings["decoder_learned_pos"]
    return tuple(each if own else min(each, _MAX_SINUSOIDS) for each, own in zip(most, learned))


def check_settings(given: Namespace) -> None:
    """Raise :class:`Unknown` unless all settings are known that say what a model computes beside α."""
    name = getattr(given, "_name", None) or getattr(given, "arch", None)
    if name not in ARCHITECTURES:
        raise Unknown(f"it is of a {name}")
    missing = sorted(REQUIRED - vars(given).keys())
    if missing:
        raise Unknown(f"its settings lack {missing[0]}")
    for name in sorted(OFF & vars(given).keys()):
        if getattr(given, name) not in (None, False, 0):
            raise Unknown(f"it has {name}")
    alpha = getattr(given, "output_alpha", None)
    if alpha is not None and not (type(alpha) in (int, float) and 1 <= alpha <= 2):
        raise Unknown(f"its output_alpha is {alpha}")
    if given.activation_fn not in ACTIVATIONS:
        raise Unknown(f"its activation is {given.activation_fn}")
    for side in ("encoder", "decoder"):
        width, heads = getattr(given, f"{side}_embed_dim"), getattr(given, f"{side}_attention_heads")
        sizes = width, heads, getattr(given, f"{side}_layers"), getattr(given, _POSITIONS[side])
        if not all(type(each) is int and each > 0 for each in sizes) or width % heads or width < 4:
            raise Unknown(f"its {side} has {heads} heads of {width} channels")


class _Parameters(dict):
    """The parameters that have not been read yet."""

    def take(self, name: str, *shape: int | None) -> np.ndarray:
        """A parameter of this shape, in which None is any size."""
        found = self.pop(name, None)
        if found is None:
            raise Unknown(f"it has no {name}")
        if found.ndim != len(shape) or any(
            wanted not in (None, size) for wanted, size in zip(shape, found.shape)
        ):
            raise Unknown(f"its {name} has the shape {'×'.join(map(str, found.shape))}")
        return found.astype(np.float32, copy=False)

    def linear(self, name: str, outputs: int, inputs: int, bias: bool = True) -> Linear:
        weight = self.take(f"{name}.weight", outputs, inputs)
        return Linear(weight, self.take(f"{name}.bias", outputs) if bias else None)

    def norm(self, name: str, width: int) -> Norm:
        return Norm(self.take(f"{name}.weight", width), self.take(f"{name}.bias", width))


class _Reader:
    """Reads one side of a model."""

    def __init__(self, parameters: _Parameters, side: str, given: Namespace, alphas: dict):
        self._parameters, self._side, self._given, self._alphas = parameters, side, given, alphas
        self._width = self._setting("embed_dim")

    def _setting(self, name: str):
        return getattr(self._given, f"{self._side}_{name}")

    def read(self) -> Side:
        parameters, side, given, width = self._parameters, self._side, self._given, self._width
        if parameters.take(f"{side}.version", 1).item() != _VERSION:
            raise Unknown(f"its {side} is of an older version")
        pre_norm = bool(self._setting("normalize_before"))
        last = pre_norm and not (side == "decoder" and getattr(given, "no_decoder_final_norm", False))
        normed = f"{side}.layernorm_embedding" if given.layernorm_embedding else None
        return Side(
            embeddings=parameters.take(f"{side}.embed_tokens.weight", None, width),
            scale=1.0 if given.no_scale_embedding else math.sqrt(width),
            projection_in=None,
            positions=self._positions(),
            embedding_norm=None if normed is None else parameters.norm(normed, width),
            layers=[self._layer(number) for number in range(self._setting("layers"))],
            pre_norm=pre_norm,
            activation=given.activation_fn,
            norm=parameters.norm(f"{side}.layer_norm", width) if last else None,
        )

    def _positions(self) -> np.ndarray | Callable[[int], np.ndarray] | None:
        if self._given.no_token_positional_embeddings:
            return None
        if not self._setting("learned_pos"):
            return functools.partial(sinusoids, width=self._width, padding=PADDING)
        rows = getattr(self._given, _POSITIONS[self._side]) + PADDING + 1
        return self._parameters.take(f"{self._side}.embed_positions.weight", rows, self._width)[PADDING + 1 :]

    def _layer(self, number: int) -> Layer:
        name, own = f"{self._side}.layers.{number}", self._alpha(f"{self._side}_self", number)
        parameters, width, inner = self._parameters, self._width, self._setting("ffn_embed_dim")
        has_context = self._side == "decoder" and not self._given.no_cross_attention
        source = self._given.encoder_embed_dim
        return Layer(
            attention=self._attention(f"{name}.self_attn", own, width),
            attention_norm=parameters.norm(f"{name}.self_attn_layer_norm", width),
            context=self._attention(f"{name}.encoder_attn", self._alpha("decoder_context", number), source)
            if has_context
            else None,
            context_norm=parameters.norm(f"{name}.encoder_attn_layer_norm", width) if has_context else None,
            fc1=parameters.linear(f"{name}.fc1", inner, width),
            fc2=parameters.linear(f"{name}.fc2", width, inner),
            final_norm=parameters.norm(f"{name}.final_layer_norm", width),
        )

    def _attention(self, name: str, alpha: np.ndarray | None, keys: int) -> Attention:
        parameters, width = self._parameters, self._width
        parameters.pop(f"{name}.alpha.a", None)  # α has been computed from it
        return Attention(
            query=parameters.linear(f"{name}.q_proj", width, width),
            key=parameters.linear(f"{name}.k_proj", width, keys),
            value=parameters.linear(f"{name}.v_proj", width, keys),
            out=parameters.linear(f"{name}.out_proj", width, width),
            alpha=np.ones(self._setting("attention_heads")) if alpha is None else alpha,
            scaling=self._scaling(f"{name}.length_scaling"),
            rela=self._rela(f"{name}.gated_norm") if alpha is None else None,
        )

    def _rela(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        scale, gate = (self._parameters.take(f"{name}.{each}", self._width) for each in ("scale", "gate"))
        return scale, gate

    def _scaling(self, name: str) -> tuple[Linear, Linear] | None:
        if not getattr(self._given, "length_scaling", False):
            return None
        sizes = self._setting("attention_heads"), self._width
        beta, gamma = (
            self._parameters.linear(f"{name}.{each}", *sizes, bias=False) for each in ("beta", "gamma")
        )
        return beta, gamma

    def _alpha(self, attention_type: str, layer: int) -> np.ndarray | None:
        """float64 (H,); None for ReLA."""
        try:
            found = self._alphas[attention_type][layer]
            if found == RELA:
                return None
            alpha = np.array(found, dtype=np.float64)
        except (LookupError, TypeError, ValueError):
            raise Unknown(f"there is no α of the {attention_type} attention of layer {layer}") from None
        if (
            alpha.shape != (self._setting("attention_heads"),)
            or not ((alpha >= 1) & (alpha <= _MOST_ALPHA)).all()
        ):
            raise Unknown(f"the α of the {attention_type} attention of layer {layer} are none")
        return alpha


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one is other or one.ctypes.data == other.ctypes.data or np.array_equal(one, other)
