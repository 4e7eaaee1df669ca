"""The flags of the output layer's α."""

from __future__ import annotations

from ..errors import UserError
from ..modules import OutputNormalizer
from .flags import adaptive_cutoffs


def add_output_flags(parser) -> None:
    """Add ``--output-alpha`` and the flags of its schedule."""
    parser.add_argument(
        "--output-alpha",
        type=float,
        metavar="A",
        help="α-entmax instead of softmax at the output, with this α, above 1 up to 2; train with "
        "--criterion entmax_loss (default: 1, softmax)",
    )
    parser.add_argument(
        "--output-alpha-start",
        type=float,
        metavar="A",
        help="move the output's α from here to --output-alpha",
    )
    parser.add_argument("--output-alpha-updates", type=int, metavar="N", help="in so many updates, linearly")


def output_normalizer(args) -> OutputNormalizer:
    """What the flags describe.

    Raises:
        UserError: a value is out of range, or values contradict each other.
    """
    alpha, start, updates = (
        getattr(args, name, None) for name in ("output_alpha", "output_alpha_start", "output_alpha_updates")
    )
    alpha, updates = 1.0 if alpha is None else alpha, 0 if updates is None else updates
    for name, value, kind in (
        ("--output-alpha", alpha, (int, float)),
        ("--output-alpha-start", start, (int, float, type(None))),
        ("--output-alpha-updates", updates, int),
    ):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{name} must be a number, not {value!r}")
    try:
        normalizer = OutputNormalizer(alpha, start, updates)
    except ValueError as error:
        raise UserError(str(error).replace("output_alpha", "--output-alpha").replace("_", "-")) from None
    if not normalizer.is_softmax and adaptive_cutoffs(args):
        raise UserError(
            "--output-alpha cannot be combined with --adaptive-softmax-cutoff, which is a softmax"
        )
    return normalizer
