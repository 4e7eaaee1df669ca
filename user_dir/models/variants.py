"""The normalizer of each attention, and queries scaled by length."""

from __future__ import annotations

import argparse

from ..attention import AlphaConfig
from ..attention.length_scaling import LengthScaling
from ..attention.normalizers import NORMALIZERS
from ..errors import UserError


def add_variant_flags(parser) -> None:
    """Add ``--length-scaling``; ``--attention-normalizer`` is one of the flags of α."""
    parser.add_argument(
        "--length-scaling",
        action="store_true",
        default=argparse.SUPPRESS,  # as fairseq does for every flag of a model
        help="scale every query by a learned power of the logarithm of the number of keys that it sees "
        "(ASEntmax), for any --attention-normalizer",
    )


def set_variants(model, args, configs: dict[str, AlphaConfig], backend: str) -> None:
    """Give every attention its normalizer, and what ``--length-scaling`` needs.

    New parameters are drawn after all others, so that models that differ only in these start from the same
    weights given the same seed.

    Raises:
        UserError: the backend or the number of heads does not suit the normalizer.
    """
    for attention_type, attentions in model.attentions().items():
        normalizer = NORMALIZERS[configs[attention_type].attention_normalizer]
        if attentions and backend == "fused" and not normalizer.fused:
            raise UserError(
                f"--attention-backend fused does not support --attention-normalizer {normalizer.name}; "
                "use auto"
            )
        for attention in attentions:
            channels = attention.embed_dim
            try:
                attention.normalizer = normalizer.build(attention_type, attention.num_heads, channels)
            except ValueError as error:
                raise UserError(f"--attention-normalizer {normalizer.name}: {error}") from None
            attention.gated_norm = normalizer.output_norm(channels)
            if getattr(args, "length_scaling", None):
                attention.length_scaling = LengthScaling(channels, attention.num_heads)
