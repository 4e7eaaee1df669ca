"""The Adaptively Sparse Transformer (Correia et al. 2019) as a fairseq model, and its sizes."""

from __future__ import annotations

from argparse import Namespace
from typing import Optional

from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig, TransformerModel
from torch import Tensor

from ..errors import UserError
from .heads import SparseHeads
from .latent_alignment import LatentAlignment, LatentAlignmentDecoder, LatentSettings, latent_alignment
from .layers import AdaptivelySparseDecoder, AdaptivelySparseEncoder
from .settings import (
    OutputSettings,
    alpha_settings,
    as_namespace,
    family,
    filled,
    flattened,
    make_settings,
    register,
    setting,
)

NAME = "adaptively_sparse_transformer"
TransformerSettings = make_settings(
    "TransformerSettings",
    [
        *flattened(TransformerConfig),
        # As in stock fairseq, the decoder's widths are the encoder's if not given.
        setting("decoder_embed_dim", Optional[int], None, "decoder embedding dimension"),
        setting("decoder_ffn_embed_dim", Optional[int], None, "decoder embedding dimension for FFN"),
        *alpha_settings(),
        *flattened(OutputSettings),
        *flattened(LatentSettings),
        setting(
            "int8",
            bool,
            False,
            "translate on a CPU with linear layers in 8-bit integers; training is not affected. When "
            "translating with a trained model: --model-overrides \"{'int8': True}\"",
        ),
    ],
)


def size(embed_dim: int, ffn_embed_dim: int, layers: int, heads: int, **more) -> dict:
    """The defaults of one size."""
    return {
        "encoder_embed_dim": embed_dim,
        "encoder_ffn_embed_dim": ffn_embed_dim,
        "encoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_layers": layers,
        "decoder_attention_heads": heads,
        **more,
    }


PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
SIZES = {
    # The paper's model: Transformer-base with pre-norm layers.
    "": size(512, 2048, 6, 8, **PRE_NORM),
    # 4+4 layers, for small corpora and CPUs (Wu et al. 2021, Transformer-Tiny), and twice as wide.
    "_tiny": size(128, 256, 4, 4),
    "_small": size(256, 1024, 4, 4),
    # Those of fairseq's transformer_iwslt_de_en, transformer_wmt_en_de and transformer_wmt_en_de_big.
    "_iwslt_de_en": size(512, 1024, 6, 4),
    "_wmt_en_de": size(512, 2048, 6, 8),
    "_wmt_en_de_big": size(1024, 4096, 6, 16, attention_dropout=0.1, dropout=0.3),
}


@register(NAME, TransformerSettings, SIZES)
class AdaptivelySparseTransformerModel(SparseHeads, TransformerModel):
    """fairseq's Transformer with α-entmax attention, whose heads learn how sparse to be.

    Takes all flags of fairseq's ``transformer`` and those of :class:`~user_dir.attention.AlphaConfig`;
    without any of the latter it is the model of the paper. Parameters have the names of the stock model, so
    its checkpoints load; each attention additionally has an ``alpha``.
    """

    int8 = False  # see --int8

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for settings that contradict each other."""
        args = as_namespace(args)
        fill_in(args)
        model = super().build_model(args, task)
        model.set_up_heads(args)
        model.int8 = bool(args.int8)
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
        if latent_alignment(args):
            return LatentAlignmentDecoder(cfg, tgt_dict, embed_tokens, args)
        return AdaptivelySparseDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    @property
    def alignment(self) -> LatentAlignment | None:
        """The decoder's latent alignment, if it has one."""
        return getattr(self.decoder, "alignment", None)

    def posterior_alignment(self, sample: dict) -> Tensor:
        """The latent alignment of a batch's target words with the source (B, T, S), given the words."""
        inputs = sample["net_input"]
        encoder_out = self.encoder(inputs["src_tokens"], src_lengths=inputs["src_lengths"])
        state, _ = self.decoder.extract_features(inputs["prev_output_tokens"], encoder_out)
        source, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
        vocabulary = self.decoder.output_projection.weight
        return self.alignment.posterior(state, source, padding, vocabulary, sample["target"])


def fill_in(args) -> None:
    """Fill in the decoder's widths; raises UserError for a width that heads cannot share."""
    for name, source in (
        ("decoder_embed_dim", "encoder_embed_dim"),
        ("decoder_ffn_embed_dim", "encoder_ffn_embed_dim"),
        ("decoder_input_dim", "decoder_embed_dim"),
        ("decoder_output_dim", "decoder_embed_dim"),
    ):
        if getattr(args, name) is None:
            setattr(args, name, getattr(args, source))
    for side in ("encoder", "decoder"):
        width, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
        if heads < 1 or width < 4 or width % heads:  # fairseq's sinusoids divide by embed_dim // 2 - 1
            raise UserError(
                f"--{side}-embed-dim is {width} and --{side}-attention-heads {heads}: every head needs the "
                "same number of channels, and a model at least 4"
            )


def from_stock(settings: dict) -> Namespace:
    """The settings of this model with softmax, α = 1, for a checkpoint of fairseq's ``transformer``.

    ``settings`` are those of the checkpoint's model.
    """
    name = settings.get("_name") or settings.get("arch")
    if family(name) != "transformer":
        raise UserError(f"the checkpoint is of a {name}, not of fairseq's stock transformer")
    stock = Namespace(**settings)
    ARCH_CONFIG_REGISTRY[name](stock)  # make the sizes that its architecture implies explicit
    ours = filled(NAME, {**vars(stock), "attention_normalizer": "entmax", "fixed_alpha": 1.0})
    ours._name = ours.arch = NAME
    return ours
