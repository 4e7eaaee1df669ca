"""fairseq's Transformer encoder and decoder with our layers."""

from functools import partial
from typing import Any, Optional

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..modules import (
    AdaptivelySparseDecoderLayer,
    AdaptivelySparseEncoderLayer,
    OutputNormalizer,
    SparseOutput,
    causal_mask,
)
from ..modules.linear import Linear


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


def layers_of(side: Optional[nn.Module]) -> list[nn.Module]:
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
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ):
        """See fairseq; this one does not wait for the device to say whether there is padding."""
        padding = src_tokens.eq(self.padding_idx)
        mask: Optional[Tensor] = padding
        if src_tokens.device.type == "cpu" and not bool(padding.any()):
            mask = None
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        x = (x * (1 - padding.unsqueeze(-1).type_as(x))).transpose(0, 1)
        states = []
        for layer in self.layers:
            if return_all_hiddens:
                states.append(x)
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

    def embedded(self, src_tokens: Tensor) -> tuple[Tensor, Optional[Tensor]]:
        """What the layers see (B, S), and its embeddings (B, S, C) if they are not those of words alone."""
        return src_tokens, None


class AdaptivelySparseDecoder(SparseOutput, TransformerDecoderBase):
    """fairseq's Transformer decoder with α-entmax layers and, if requested, an α-entmax output."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.output_normalizer = OutputNormalizer()
        # fairseq then passes the mask of padding without asking the device whether there is any, for which it
        # would wait. The layers have their own copy of the setting.
        self.prepends_source, self.cross_self_attention = self.cross_self_attention, True

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
        if self.prepends_source:  # fairseq prepends the source's keys to the mask
            length = tensor.size(0)
            return tensor.new_full([length, length], float("-inf")).triu(1)
        return causal_mask(tensor)
