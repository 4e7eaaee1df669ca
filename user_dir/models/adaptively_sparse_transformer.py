"""The Adaptively Sparse Transformer (Correia et al. 2019) as a fairseq model."""

import logging
from functools import partial
from typing import Any, Optional

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
    LatentAlignment,
    OutputNormalizer,
    SparseOutput,
    causal_mask,
)
from ..modules.linear import Linear
from .flags import add_alpha_flags, alpha_configs, attention_backend, check_cutoffs
from .latent_flags import add_latent_flags, latent_alignment
from .output import add_output_flags, output_normalizer
from .sparse_heads import SparseHeads
from .variants import add_variant_flags

logger = logging.getLogger(__name__)


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

    def embedded(self, src_tokens: Tensor) -> tuple[Tensor, Optional[Tensor]]:
        """What the layers see (B, S), and its embeddings (B, S, C) if they are not those of words alone."""
        return src_tokens, None


class AdaptivelySparseDecoder(SparseOutput, TransformerDecoderBase):
    """fairseq's Transformer decoder with α-entmax layers and, if requested, an α-entmax output."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.output_normalizer = OutputNormalizer()

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See fairseq."""
        return _wrap_layer(AdaptivelySparseDecoderLayer(cfg, no_encoder_attn), cfg)

    def build_output_projection(self, cfg, dictionary, embed_tokens):
        """See fairseq."""
        super().build_output_projection(cfg, dictionary, embed_tokens)
        if type(self.output_projection) is nn.Linear:  # not with adaptive softmax
            self.output_projection = Linear.sharing(self.output_projection)

    def forward(
        self,
        prev_output_tokens,
        encoder_out: Optional[dict[str, list[Tensor]]] = None,
        incremental_state: Optional[dict[str, dict[str, Optional[Tensor]]]] = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        src_lengths: Optional[Any] = None,
        return_all_hiddens: bool = False,
    ):
        """See fairseq; what follows the features is :meth:`outputs`."""
        x, extra = self.extract_features(
            prev_output_tokens,
            encoder_out=encoder_out,
            incremental_state=incremental_state,
            full_context_alignment=full_context_alignment,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
        )
        if not features_only:
            x = self.outputs(x, extra, encoder_out, incremental_state)
        return x, extra

    def outputs(
        self,
        x: Tensor,
        extra: dict[str, list[Optional[Tensor]]],
        encoder_out: Optional[dict[str, list[Tensor]]],
        incremental_state: Optional[dict[str, dict[str, Optional[Tensor]]]],
    ) -> Tensor:
        """The model's output (B, T, V) for the features x (B, T, C); may change ``extra``."""
        return self.output_layer(x)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        """The causal mask for decoder states (T, B, C), in a form that our attention need not read."""
        if self.cross_self_attention:  # fairseq prepends the source's keys to the mask
            length = tensor.size(0)
            return torch.full((length, length), float("-inf")).triu(1).to(tensor)
        return causal_mask(tensor)


@register_model("adaptively_sparse_transformer")
class AdaptivelySparseTransformerModel(SparseHeads, TransformerModel):
    """fairseq's Transformer with α-entmax attention, whose heads learn how sparse to be.

    Takes all flags of fairseq's ``transformer`` and those of :class:`~user_dir.attention.AlphaConfig`;
    without any of the latter it is the model of the paper. Parameters have the names of the stock model, so
    its checkpoints load; each attention additionally has an ``alpha``.
    """

    __jit_unused_properties__ = ("alignment",)
    int8 = False  # see --int8

    @classmethod
    def add_args(cls, parser):
        """Add fairseq's Transformer flags and ours."""
        super().add_args(parser)
        add_alpha_flags(parser)
        parser.add_argument(
            "--int8",
            action="store_true",
            help="translate on a CPU with linear layers in 8-bit integers; training is not affected. When "
            "translating with a trained model: --model-overrides \"{'int8': True}\"",
        )
        add_output_flags(parser)
        add_variant_flags(parser)
        add_latent_flags(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid combinations of flags."""
        configs, backend, output = alpha_configs(args), attention_backend(args), output_normalizer(args)
        check_cutoffs(args, len(task.target_dictionary))
        model = super().build_model(args, task)
        model.set_up_heads(args, configs, backend)
        model.int8 = bool(getattr(args, "int8", False))
        model.decoder.output_normalizer = output
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
        latent = latent_alignment(args)
        if latent is not None:
            from .latent_alignment import LatentAlignmentDecoder  # which extends the decoder of this file

            return LatentAlignmentDecoder(cfg, tgt_dict, embed_tokens, latent)
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

    @property
    def alignment(self) -> LatentAlignment | None:
        """The decoder's latent alignment, if it has one."""
        return getattr(self.decoder, "alignment", None)

    def posterior_alignment(self, sample: dict) -> Tensor:
        """The latent alignment of a batch's target words with the source (B, T, S), given the words."""
        given = sample["net_input"]
        encoder_out = self.encoder(given["src_tokens"], src_lengths=given["src_lengths"])
        return self.decoder.posterior(encoder_out, given["prev_output_tokens"], sample["target"])
