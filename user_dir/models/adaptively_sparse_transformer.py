"""The Adaptively Sparse Transformer (Correia et al. 2019) as a fairseq model."""

from __future__ import annotations

import logging
from functools import partial

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.logging import metrics
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, distributed, nn
from torch.utils.checkpoint import checkpoint

from ..attention import Alpha, AlphaConfig
from ..errors import ending_the_run
from ..guards.hostile_checkpoints import require_finite
from ..modules import (
    AdaptivelySparseDecoderLayer,
    AdaptivelySparseEncoderLayer,
    EntmaxMultiheadAttention,
    OutputNormalizer,
    SparseOutput,
    causal_mask,
)
from .alpha_log import AlphaLog
from .flags import add_alpha_flags, alpha_configs, attention_backend, check_cutoffs
from .output import add_output_flags, output_normalizer

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


class AdaptivelySparseDecoder(SparseOutput, TransformerDecoderBase):
    """fairseq's Transformer decoder with α-entmax layers and, if requested, an α-entmax output."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.output_normalizer = OutputNormalizer()

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
class AdaptivelySparseTransformerModel(TransformerModel):
    """fairseq's Transformer with α-entmax attention, whose heads learn how sparse to be.

    Takes all flags of fairseq's ``transformer`` and those of :class:`~user_dir.attention.AlphaConfig`;
    without any of the latter it is the model of the paper. Parameters have the names of the stock model, so
    its checkpoints load; each attention additionally has an ``alpha``.
    """

    def __init__(self, args, encoder, decoder):
        super().__init__(args, encoder, decoder)
        self.alpha_log: AlphaLog | None = None
        self.reported: int | None = None  # the last update reported
        self.trains_alignment = False
        self.int8 = False  # see --int8

    @classmethod
    def hub_models(cls):
        """No pretrained models are published."""
        return {}

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

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid combinations of flags."""
        configs, backend, output = alpha_configs(args), attention_backend(args), output_normalizer(args)
        check_cutoffs(args, len(task.target_dictionary))
        model = super().build_model(args, task)
        model.set_alphas(configs)
        model.int8 = bool(getattr(args, "int8", False))
        model.decoder.output_normalizer = output
        for attentions in model.attentions().values():
            for attention in attentions:
                attention.backend = backend
        # A dataset with alignments is used to train alignment.
        model.trains_alignment = bool(getattr(getattr(task, "cfg", None), "load_alignments", False))
        if getattr(args, "alpha_log", None):
            interval = getattr(args, "alpha_log_interval", None)
            model.alpha_log = AlphaLog(args.alpha_log, 100 if interval is None else interval)
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

    def set_alphas(self, configs: dict[str, AlphaConfig]) -> None:
        """Set the α of every attention.

        This happens after everything else is initialised, so that models that differ only in α start from
        the same weights given the same seed.
        """
        shared: dict[str, Alpha] = {}
        for attention_type, attentions in self.attentions().items():
            config = configs[attention_type]
            group = {"model": "model", "type": attention_type}.get(config.alpha_tying)
            for attention in attentions:
                alpha = shared.get(group) or Alpha(attention.num_heads, config)
                if group is not None:
                    shared[group] = alpha
                attention.alpha = alpha

    def alphas(self) -> dict[str, list[Tensor]]:
        """The α's of each attention type and layer, detached tensors (H,)."""
        return {
            attention_type: [
                attention.alpha().detach().flatten().expand(attention.num_heads) for attention in attentions
            ]
            for attention_type, attentions in self.attentions().items()
        }

    def alpha_values(self) -> dict[str, list[list[float]]]:
        """:meth:`alphas` as numbers, without attention types that this model does not have."""
        alphas = self.alphas()
        device = next(self.parameters()).device
        tensors = [alpha.to(device) for layers in alphas.values() for alpha in layers]
        numbers = iter(torch.cat(tensors).tolist())  # a single synchronisation
        values = {
            attention_type: [[next(numbers) for _ in alpha] for alpha in layers]
            for attention_type, layers in alphas.items()
        }
        return {attention_type: layers for attention_type, layers in values.items() if layers}

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """See fairseq; a checkpoint of another model ends the command with an error message."""
        learns = any(name.endswith(".alpha.a") for name in self.state_dict())
        if learns and not any(name.endswith(".alpha.a") for name in state_dict):
            logger.warning(
                "the checkpoint has no α's, so they keep their initial values. To continue training from it, "
                "use --reset-optimizer, or --finetune-from-model instead of --restore-file"
            )
        with ending_the_run():
            require_finite(state_dict, "the checkpoint")
        try:
            return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)
        except RuntimeError as error:
            reason = " ".join(str(error).split(":", 1)[-1].split())
            raise SystemExit(
                "error: the checkpoint does not fit this model: it was trained with different settings; "
                f"give them here too. {reason[:300]}"
            ) from None

    def after_update(self, num_updates: int) -> None:
        """Advance schedules and record α; called before the first update and after each update.

        See :mod:`..guards.update_reports`.
        """
        if num_updates == self.reported:
            return
        self.reported = num_updates
        self.set_num_updates(num_updates)
        by_type = self.attentions()
        for attention in by_type["decoder_context"]:
            attention.discards_weights = not self.trains_alignment
        moving = [
            name
            for name, attentions in by_type.items()
            if any(attention.alpha.constant is None for attention in attentions)
        ]
        first_worker = not distributed.is_initialized() or distributed.get_rank() == 0
        recording = self.alpha_log is not None and first_worker
        if not moving and not recording:
            return
        values = self.alpha_values()
        for name in moving:
            log_summary(name, values[name])
        if recording:
            with ending_the_run():
                self.alpha_log.record(num_updates, values)


def log_summary(attention_type: str, layers: list[list[float]]) -> None:
    """Log mean, minimum and maximum α of an attention type to fairseq's log line and TensorBoard."""
    values = [alpha for layer in layers for alpha in layer]
    summary = {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}
    for name, value in summary.items():
        # Weight 0: the latest value, not a mean over the log interval.
        metrics.log_scalar(f"alpha_{attention_type}_{name}", value, weight=0, priority=400, round=3)
