"""fairseq's Transformer encoder, decoder and layers with α-entmax attention, and an α-entmax output."""

from __future__ import annotations

import functools
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..entmax import entmax
from ..entmax.operators import exporting_to_onnx
from ..errors import UserError
from .multihead_attention import EntmaxMultiheadAttention, causal_mask


class Linear(nn.Linear):
    """``nn.Linear`` by oneDNN, forward and backward, if :func:`suits_onednn`.

    oneDNN comes with PyTorch, which otherwise multiplies float32 matrices by MKL.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        return linear(x, self.weight, self.bias)


def use_onednn(model: nn.Module) -> nn.Module:
    """Make the linear layers of a model :class:`Linear`; returns the model."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
    return model


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``torch.nn.functional.linear``, by oneDNN if :func:`suits_onednn`."""
    if suits_onednn(x, weight):
        return _Product.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return multiply(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        product = F.linear if torch.is_grad_enabled() else multiply  # oneDNN's has no derivative
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = product(rows.contiguous(), weight.t(), None).view(x.shape) if needs_x else None
        # Twice as fast as rows.t() @ x where the weight has many rows: oneDNN reads both as they are.
        grad_weight = product(x.flatten(0, -2).t(), rows.t(), None).t() if needs_weight else None
        return grad_x, grad_weight, rows.sum(0) if ctx.has_bias and needs_bias else None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """xWᵀ + b by oneDNN, (R, inputs) → (R, outputs)."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@functools.cache
def prefers_onednn() -> bool:
    """Whether this is an AMD processor with AVX-512, which MKL does not use there.

    oneDNN takes half (Zen 5) or .8 (Zen 4) of MKL's time. A training that is resumed must choose as before,
    because the two differ in the last digits.
    """
    cpuinfo = Path("/proc/cpuinfo")
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    processor = cpuinfo.read_text() if there and cpuinfo.is_file() else ""
    return "AuthenticAMD" in processor and "avx512f" in processor


def suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN supports these tensors and is faster than MKL."""
    return (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and x.dim() > 1
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not exporting_to_onnx()
        and prefers_onednn()
    )


def _attention(layer: nn.Module, embed_dim: int, heads: int, cfg, **kind) -> EntmaxMultiheadAttention:
    """An attention of one of fairseq's layers; ``kind`` says what it attends to."""
    return EntmaxMultiheadAttention(
        embed_dim,
        heads,
        dropout=cfg.attention_dropout,
        q_noise=layer.quant_noise,
        qn_block_size=layer.quant_noise_block_size,
        **kind,
    )


class AdaptivelySparseEncoderLayer(TransformerEncoderLayerBase):
    """Encoder layer with α-entmax self-attention."""

    def build_self_attention(self, embed_dim, cfg):
        """See fairseq."""
        return _attention(self, embed_dim, cfg.encoder.attention_heads, cfg, self_attention=True)


class AdaptivelySparseDecoderLayer(TransformerDecoderLayerBase):
    """Decoder layer with α-entmax self-attention and context attention.

    Context attention weights are only computed when requested, not in every evaluation.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.need_attn = False

    def make_generation_fast_(self, need_attn: bool = False, **kwargs) -> None:
        """Leave ``need_attn`` unchanged; fairseq's makes all layers compute weights if one needs them."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See fairseq."""
        own = not cfg.cross_self_attention
        return _attention(self, embed_dim, cfg.decoder.attention_heads, cfg, self_attention=own)

    def build_encoder_attention(self, embed_dim, cfg):
        """See fairseq."""
        source = {"kdim": cfg.encoder.embed_dim, "vdim": cfg.encoder.embed_dim}
        heads = cfg.decoder.attention_heads
        return _attention(self, embed_dim, heads, cfg, encoder_decoder_attention=True, **source)


class OutputNormalizer(nn.Module):
    """α-entmax of a model's output; without parameters, so checkpoints do not depend on it.

    Args:
        alpha: α, from 1 (softmax) to 2, after the schedule.
        start: α at the start of the schedule.
        updates: length of the schedule, which is linear, in updates.
    """

    def __init__(self, alpha: float = 1.0, start: float = 1.0, updates: int = 0):
        super().__init__()
        self.start, self.end, self.schedule_updates = start, alpha, updates
        # fairseq sets it before each update and when it loads a checkpoint for training or inference.
        self.updates = 0

    @property
    def is_softmax(self) -> bool:
        """Whether α is 1 throughout."""
        return self.start == 1 and self.end == 1

    def alpha(self) -> float:
        """α at the current update."""
        if self.updates >= self.schedule_updates:
            return self.end
        return self.start + (self.end - self.start) * self.updates / self.schedule_updates

    def forward(self, scores: Tensor, log_probs: bool) -> Tensor:
        """Probabilities, or their logarithms (−∞ outside the support), in float32 or float64; (…, V)."""
        alpha = self.alpha()
        scores = scores if scores.dtype == torch.float64 else scores.float()
        if alpha == 1.0:
            return torch.log_softmax(scores, -1) if log_probs else torch.softmax(scores, -1)
        p = entmax(scores, alpha)
        if not log_probs:
            return p
        zero = p == 0  # whose logarithm takes ten times as long
        return p.masked_fill(zero, 1.0).log().masked_fill(zero, -float("inf"))

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of updates made; called by fairseq."""
        self.updates = num_updates


def output_normalizer(args) -> OutputNormalizer:
    """The normalizer that the settings describe; raises UserError if they contradict each other."""
    alpha, start, updates = args.output_alpha, args.output_alpha_start, args.output_alpha_updates
    start = alpha if start is None else start
    for value in (alpha, start):
        if not 1 <= value <= 2:
            raise UserError(f"--output-alpha and --output-alpha-start must be from 1 to 2, not {value:g}")
    if (start != alpha) != (updates > 0):
        raise UserError("--output-alpha-start and --output-alpha-updates must be given together")
    normalizer = OutputNormalizer(alpha, start, updates)
    if not normalizer.is_softmax and args.adaptive_softmax_cutoff:
        raise UserError("--output-alpha replaces the softmax that --adaptive-softmax-cutoff asks for")
    return normalizer


def _wrap_layer(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Apply activation checkpointing and sharding, as fairseq's encoder and decoder do, and oneDNN."""
    use_onednn(layer)
    if cfg.offload_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=True)
    elif cfg.checkpoint_activations:
        # fairseq's own wrapper runs a backward within the backward, which DistributedDataParallel rejects if
        # layers share an α, and with --find-unused-parameters.
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    # A checkpointed layer is always wrapped, whatever its size.
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


def layers_of(side: nn.Module | None) -> list[nn.Module]:
    """All layers of an encoder or decoder, also under LayerDrop, where iterating drops some; [] for None."""
    return [] if side is None else [side.layers[i] for i in range(len(side.layers))]


class AdaptivelySparseEncoder(TransformerEncoderBase):
    """fairseq's Transformer encoder with α-entmax layers."""

    def build_encoder_layer(self, cfg):
        """See fairseq."""
        return _wrap_layer(AdaptivelySparseEncoderLayer(cfg), cfg)

    def forward_scriptable(
        self,
        src_tokens,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ):
        """See fairseq; this version does not synchronise with a GPU to learn whether there is padding."""
        padding = src_tokens.eq(self.padding_idx)
        mask = None if src_tokens.device.type == "cpu" and not padding.any() else padding
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        x = (x * (1 - padding.unsqueeze(-1).type_as(x))).transpose(0, 1)
        states = [x] if return_all_hiddens else []
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=mask)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        lengths = src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32).reshape(-1, 1).contiguous()
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths],
        }


class AdaptivelySparseDecoder(TransformerDecoderBase):
    """fairseq's Transformer decoder with α-entmax layers and, if requested, an α-entmax output."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.output_normalizer = OutputNormalizer()
        # With this setting, fairseq passes the padding mask without synchronising with the device to learn
        # whether there is padding. The layers have their own copy of the setting.
        self.prepends_source, self.cross_self_attention = self.cross_self_attention, True
        self.gives_log_probs = False  # instead of logits; read in training only, as a search may change them

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See fairseq."""
        return _wrap_layer(AdaptivelySparseDecoderLayer(cfg, no_encoder_attn), cfg)

    def build_output_projection(self, cfg, dictionary, embed_tokens):
        """See fairseq."""
        super().build_output_projection(cfg, dictionary, embed_tokens)
        if self.output_projection is not None:  # as with adaptive softmax
            use_onednn(self.output_projection)

    def forward(
        self,
        prev_output_tokens,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        features_only: bool = False,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        **alignment,
    ):
        """See fairseq; ``alignment`` is for ``extract_features``, whose features go to :meth:`outputs`."""
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state, **alignment)
        if not features_only:
            x = self.outputs(x, extra, encoder_out, incremental_state)
        return x, extra

    def outputs(
        self,
        x: Tensor,
        extra: dict[str, list[Tensor | None]],
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
    ) -> Tensor:
        """The model's output (B, T, V) for the features x (B, T, C); may change ``extra``."""
        return self.output_layer(x)

    def get_normalized_probs(
        self,
        net_output: tuple[Tensor, dict[str, list[Tensor | None]] | None],
        log_probs: bool,
        sample: dict[str, Tensor] | None = None,
    ):
        """Probabilities or log-probabilities, −∞ outside the support; see fairseq."""
        if self.training and log_probs and self.gives_log_probs:
            return net_output[0]
        if self.output_normalizer.alpha() == 1.0:
            return super().get_normalized_probs(net_output, log_probs, sample)
        if self.training and log_probs:
            raise UserError("a model with --output-alpha is trained with --criterion entmax_loss")
        return self.output_normalizer(net_output[0], log_probs)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        """The causal mask for states (T, B, C): :func:`causal_mask` unless the source is prepended."""
        if self.prepends_source:  # fairseq prepends the source's keys to the mask
            length = tensor.size(0)
            return tensor.new_full([length, length], float("-inf")).triu(1)
        return causal_mask(tensor)
