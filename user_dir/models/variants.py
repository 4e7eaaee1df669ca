"""Attention that others compare with: ReLA, fixed patterns, and queries scaled by length."""

from __future__ import annotations

import argparse

from ..attention import AlphaConfig
from ..attention.fixed_patterns import PATTERNS
from ..attention.length_scaling import LengthScaling
from ..attention.rela import GatedRMSNorm
from ..errors import UserError


def add_variant_flags(parser) -> None:
    """Add ``--length-scaling``; the others are values of ``--attention-normalizer``."""
    parser.add_argument(
        "--length-scaling",
        action="store_true",
        default=argparse.SUPPRESS,  # as fairseq does for every flag of a model
        help="scale every query by a learned power of the logarithm of the number of keys that it sees "
        "(ASEntmax), for any --attention-normalizer",
    )


def set_variants(model, args, configs: dict[str, AlphaConfig], backend: str) -> None:
    """Give every attention what its normalizer and ``--length-scaling`` need.

    New parameters are drawn after all others, so that models that differ only in these start from the same
    weights given the same seed.

    Raises:
        UserError: the backend or the number of heads does not suit the normalizer.
    """
    for attention_type, attentions in model.attentions().items():
        normalizer = configs[attention_type].attention_normalizer
        if attentions and backend == "fused" and normalizer in ("rela", "fixed"):
            raise UserError(
                f"--attention-backend fused does not support --attention-normalizer {normalizer}; use auto"
            )
        for attention in attentions:
            if normalizer == "rela":
                attention.gated_norm = GatedRMSNorm(attention.embed_dim)
            if normalizer == "fixed" and attention_type == "encoder_self":
                if attention.num_heads < 2:
                    raise UserError(
                        "--attention-normalizer fixed needs at least 2 --encoder-attention-heads: "
                        "one is learned"
                    )
                attention.fixed_heads = min(len(PATTERNS), attention.num_heads - 1)
            if getattr(args, "length_scaling", None):
                attention.length_scaling = LengthScaling(attention.embed_dim, attention.num_heads)
