"""Model architectures. Each is a function that sets the sizes not given on the command line."""

from __future__ import annotations

from fairseq.models import register_model_architecture
from fairseq.models.transformer import base_architecture as stock_base_architecture

from ..alpha_settings import alpha_configs
from .adaptively_sparse_transformer import AdaptivelySparseTransformerModel  # noqa: F401  registers the model
from .flags import adaptive_cutoffs, attention_backend, check_sizes
from .latent_alignment import latent_alignment
from .output import output_normalizer

MODEL = "adaptively_sparse_transformer"


def default(args, **values) -> None:
    """Set the values that are not given."""
    for name, value in values.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def size(args, embed_dim: int, ffn_embed_dim: int, layers: int, heads: int) -> None:
    """Set the sizes of both sides that are not given, and validate all flags."""
    default(
        args,
        encoder_embed_dim=embed_dim,
        encoder_ffn_embed_dim=ffn_embed_dim,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_layers=layers,
        decoder_attention_heads=heads,
    )
    # As in stock fairseq, the decoder's widths default to the encoder's.
    default(args, decoder_embed_dim=args.encoder_embed_dim, decoder_ffn_embed_dim=args.encoder_ffn_embed_dim)
    _check(args)
    stock_base_architecture(args)


def _check(args) -> None:
    """Validate the flags while the command line is being parsed."""
    alpha_configs(args)
    attention_backend(args)
    adaptive_cutoffs(args)
    output_normalizer(args)
    latent_alignment(args)
    for side in ("encoder", "decoder"):
        check_sizes(args, side)


@register_model_architecture(MODEL, MODEL)
def base(args):
    """The paper's model: Transformer-base with pre-norm layers."""
    default(args, encoder_normalize_before=True, decoder_normalize_before=True)
    size(args, embed_dim=512, ffn_embed_dim=2048, layers=6, heads=8)


@register_model_architecture(MODEL, MODEL + "_tiny")
def tiny(args):
    """A small model of 4+4 layers, for small corpora and CPUs (Wu et al. 2021, Transformer-Tiny)."""
    size(args, embed_dim=128, ffn_embed_dim=256, layers=4, heads=4)


@register_model_architecture(MODEL, MODEL + "_small")
def small(args):
    """Twice as wide as tiny, for a few hundred thousand pairs on a CPU."""
    size(args, embed_dim=256, ffn_embed_dim=1024, layers=4, heads=4)


@register_model_architecture(MODEL, MODEL + "_iwslt_de_en")
def iwslt_de_en(args):
    """The size of fairseq's transformer_iwslt_de_en."""
    size(args, embed_dim=512, ffn_embed_dim=1024, layers=6, heads=4)


@register_model_architecture(MODEL, MODEL + "_wmt_en_de")
def wmt_en_de(args):
    """The size of fairseq's transformer_wmt_en_de: base, with post-norm layers."""
    size(args, embed_dim=512, ffn_embed_dim=2048, layers=6, heads=8)


@register_model_architecture(MODEL, MODEL + "_wmt_en_de_big")
def wmt_en_de_big(args):
    """The size of fairseq's transformer_wmt_en_de_big."""
    default(args, attention_dropout=0.1, dropout=0.3)
    size(args, embed_dim=1024, ffn_embed_dim=4096, layers=6, heads=16)
