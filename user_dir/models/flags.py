"""The model's flags, derived from :class:`~user_dir.attention.AlphaConfig`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.utils import eval_str_list

from ..attention import ATTENTION_TYPES, BACKENDS, AlphaConfig, unavailable
from ..checkpoints import is_literal
from ..entmax import has_native
from ..errors import UserError


@dataclass
class _AlphaFlags(FairseqDataclass, AlphaConfig):
    """AlphaConfig as a dataclass from which fairseq generates flags."""


def add_alpha_flags(parser) -> None:
    """Add the flags of attention; of them one for each field of AlphaConfig, in general and for each type.

    For instance ``--alpha-init`` and ``--encoder-self-alpha-init``.
    """
    gen_parser_from_dataclass(parser, _AlphaFlags(), delete_default=True, with_prefix="")
    for attention_type in ATTENTION_TYPES:
        prefix = "--" + attention_type.replace("_", "-")
        gen_parser_from_dataclass(parser, _AlphaFlags(), delete_default=True, with_prefix=prefix)
    parser.add_argument(
        "--alpha-log", type=str, metavar="FILE", help="append every α to this JSON lines file"
    )
    parser.add_argument(
        "--alpha-log-interval", type=int, metavar="N", help="updates between lines of it (default: 100)"
    )
    parser.add_argument(
        "--attention-backend",
        metavar="NAME",
        help="implementation of attention: fused, a kernel for the device that does not store the weights "
        "(refuses to run if there is none, or if it does not support the training settings; dense is used "
        "where weights are requested, as for alignments); dense, which stores the weights; auto (default), "
        "the faster one that is supported",
    )
    parser.add_argument(
        "--length-scaling",
        action="store_true",
        default=argparse.SUPPRESS,  # as fairseq does for every flag of a model
        help="scale every query by a learned power of the logarithm of the number of keys that it sees "
        "(ASEntmax), for any --attention-normalizer",
    )


def check_sizes(args, side: str) -> None:
    """Raise UserError over a size of ``encoder`` or ``decoder`` that attention or fairseq cannot have."""
    for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads"):
        value = getattr(args, f"{side}_{name}")
        if not isinstance(value, int) or value <= 0:
            raise UserError(f"--{side}-{name.replace('_', '-')} must be a positive integer, not {value!r}")
    embed_dim, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
    if embed_dim < 4:  # fairseq's sinusoids divide by embed_dim // 2 - 1
        raise UserError(f"--{side}-embed-dim must be at least 4, not {embed_dim}")
    if embed_dim % heads:
        raise UserError(
            f"--{side}-embed-dim {embed_dim} is not divisible by --{side}-attention-heads {heads}; "
            "every head needs the same number of channels"
        )
    if getattr(args, f"{side}_xformers_att_config", None) is not None:
        raise UserError(f"--{side}-xformers-att-config replaces this model's attention; omit it")


def attention_backend(args) -> str:
    """The value of ``--attention-backend``.

    Raises:
        UserError: it is unknown, or ``fused`` without fused kernels, or ENTMAX_BACKEND is invalid.
    """
    backend = getattr(args, "attention_backend", None)
    backend = "auto" if backend is None else backend
    if backend not in BACKENDS:
        raise UserError(f"unknown --attention-backend {backend!r}: choose from {', '.join(BACKENDS)}")
    device = "cuda" if torch.cuda.is_available() and not getattr(args, "cpu", False) else "cpu"
    try:
        has_native(device)  # validates ENTMAX_BACKEND
    except ValueError as error:
        raise UserError(str(error)) from None
    missing = unavailable(backend, device)
    if missing is not None:
        raise UserError(f"--attention-backend {backend}: {missing}; use --attention-backend auto")
    return backend


def adaptive_cutoffs(args) -> list[int]:
    """``--adaptive-softmax-cutoff``, [] if not given; raises UserError if it is not increasing."""
    given = getattr(args, "adaptive_softmax_cutoff", None)
    try:
        # fairseq evaluates it as Python
        cutoffs = eval_str_list(given, type=int) if not isinstance(given, str) or is_literal(given) else [0]
    except (ValueError, TypeError, OverflowError):
        cutoffs = [0]
    if given is not None and (not cutoffs or cutoffs[0] < 1 or sorted(set(cutoffs)) != cutoffs):
        raise UserError(
            "--adaptive-softmax-cutoff must be increasing positive integers separated by commas, "
            f"not {given!r}"
        )
    return cutoffs or []


def check_cutoffs(args, symbols: int) -> None:
    """Raise UserError if ``--adaptive-softmax-cutoff`` does not fit the vocabulary or the decoder."""
    cutoffs = adaptive_cutoffs(args)
    if cutoffs and cutoffs[-1] >= symbols:
        raise UserError(f"--adaptive-softmax-cutoff {cutoffs[-1]} must be below the {symbols} target symbols")
    width, factor = getattr(args, "decoder_output_dim", 0), getattr(args, "adaptive_softmax_factor", 4)
    if cutoffs and width // factor ** len(cutoffs) < 1:
        raise UserError(
            f"--adaptive-softmax-cutoff has {len(cutoffs)} sizes, each 1/{factor:g} as wide as the previous "
            f"one, so the last has no dimension left of --decoder-output-dim {width}"
        )
