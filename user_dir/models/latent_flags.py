"""The flags of a latent alignment."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ..errors import UserError
from .flags import alpha_configs

DEFAULT_TOP_K = 8


@dataclass(frozen=True)
class LatentSettings:
    """Settings of :class:`~user_dir.modules.LatentAlignment`."""

    top_k: int
    soft: bool


def add_latent_flags(parser) -> None:
    """Add ``--latent-alignment`` and the flags that belong to it."""
    parser.add_argument(
        "--latent-alignment",
        action="store_true",
        default=argparse.SUPPRESS,  # as fairseq does for every flag of a model
        help="the top context attention, of one head, is a distribution over source positions that is summed "
        "out exactly; its alpha is set like that of decoder context attention",
    )
    parser.add_argument(
        "--latent-alignment-top-k",
        type=int,
        metavar="K",
        help=f"the most positions per target word in this sum (default: {DEFAULT_TOP_K})",
    )
    parser.add_argument(
        "--latent-alignment-soft",
        action="store_true",
        default=argparse.SUPPRESS,
        help="attend to the expected source position instead of summing: a baseline of equal size",
    )


def latent_alignment(args) -> LatentSettings | None:
    """The settings of ``--latent-alignment``; None without it.

    Raises:
        UserError: a value is invalid, or another flag contradicts it.
    """
    top_k, soft = getattr(args, "latent_alignment_top_k", None), getattr(args, "latent_alignment_soft", False)
    if not getattr(args, "latent_alignment", False):
        for given, flag in ((top_k is not None, "top-k"), (soft, "soft")):
            if given:
                raise UserError(f"--latent-alignment-{flag} requires --latent-alignment")
        return None
    top_k = DEFAULT_TOP_K if top_k is None else top_k
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise UserError(f"--latent-alignment-top-k must be a positive integer, not {top_k!r}")
    if getattr(args, "adaptive_softmax_cutoff", None) is not None:
        raise UserError("--latent-alignment needs the whole softmax; omit --adaptive-softmax-cutoff")
    if getattr(args, "output_alpha", None) not in (None, 1):
        raise UserError("--latent-alignment sums probabilities of a softmax; omit --output-alpha")
    if getattr(args, "no_cross_attention", False):
        raise UserError("--latent-alignment replaces the top context attention; omit --no-cross-attention")
    if alpha_configs(args)["decoder_context"].constant == 1 and not soft:
        raise UserError(
            "--latent-alignment needs α-entmax in context attention with an alpha above 1; "
            "give --decoder-context-fixed-alpha 1.5, for instance"
        )
    return LatentSettings(top_k, bool(soft))
