"""The Adaptively Sparse Transformer (Correia et al. 2019) as a fairseq model."""

from __future__ import annotations

from functools import partial

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..modules import (
    AdaptivelySparseDecoderLayer,
    AdaptivelySparseEncoderLayer,
    EntmaxMultiheadAttention,
    causal_mask,
)
from .flags import add_alpha_flags, alpha_configs, attention_backend, check_cutoffs
from .learned_alphas import LearnedAlphas


def _wrap_layer(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Apply activation checkpointing and sharding, as fairseq's encoder and decoder do."""
    if cfg.offload_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=True)
    elif cfg.checkpoint_activations:
        # fairseq's own wrapper runs a backward within the backward, which DistributedDataParallel rejects if
        # layers share an α, and with --find-unused-parameters.
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    # A checkpointed layer is always wrapped, whatever its size.
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class AdaptivelySparseEncoder(TransformerEncoderBase):
    """fairseq's Transformer encoder with α-entmax layers."""

    def build_encoder_layer(self, cfg):
        """See fairseq."""
        return _wrap_layer(AdaptivelySparseEncoderLayer(cfg), cfg)


class AdaptivelySparseDecoder(TransformerDecoderBase):
    """fairseq's Transformer decoder with α-entmax layers."""

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See fairseq."""
        return _wrap_layer(AdaptivelySparseDecoderLayer(cfg, no_encoder_attn), cfg)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        """The causal mask for decoder states (T, B, C), in a form that our attention need not read."""
        if self.cross_self_attention:  # fairseq prepends the source's keys to the mask
            length = tensor.size(0)
            return torch.full((length, length), float("-inf")).triu(1).to(tensor)
        return causal_mask(tensor)


@register_model("adaptively_sparse_transformer")
class AdaptivelySparseTransformerModel(LearnedAlphas, TransformerModel):
    """fairseq's Transformer with α-entmax attention, whose heads learn how sparse to be.

    Takes all flags of fairseq's ``transformer`` and those of :class:`~user_dir.attention.AlphaConfig`;
    without any of the latter it is the model of the paper. Parameters have the names of the stock model, so
    its checkpoints load; each attention additionally has an ``alpha``.
    """

    @classmethod
    def hub_models(cls):
        """No pretrained models are published."""
        return {}

    @classmethod
    def add_args(cls, parser):
        """Add fairseq's Transformer flags and ours."""
        super().add_args(parser)
        add_alpha_flags(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid combinations of flags."""
        configs, backend = alpha_configs(args), attention_backend(args)
        check_cutoffs(args, len(task.target_dictionary))
        model = super().build_model(args, task)
        model.configure_attention(args, configs, backend)
        # A dataset with alignments is used to train alignment.
        model.trains_alignment = bool(getattr(getattr(task, "cfg", None), "load_alignments", False))
        return model

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        """See fairseq."""
        return AdaptivelySparseEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        """See fairseq."""
        cfg = TransformerConfig.from_namespace(args)
        return AdaptivelySparseDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def attentions(self) -> dict[str, list[EntmaxMultiheadAttention]]:
        """The attention modules of each type, by layer."""
        # By index, because iterating over the layers would drop some under LayerDrop.
        encoder_layers = [self.encoder.layers[i] for i in range(len(self.encoder.layers))]
        decoder_layers = [self.decoder.layers[i] for i in range(len(self.decoder.layers))]
        return {
            "encoder_self": [layer.self_attn for layer in encoder_layers],
            "decoder_self": [layer.self_attn for layer in decoder_layers],
            "decoder_context": [
                layer.encoder_attn for layer in decoder_layers if layer.encoder_attn is not None
            ],
        }
