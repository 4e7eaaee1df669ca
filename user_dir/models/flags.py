"""The model's flags: from :class:`~user_dir.attention.AlphaConfig` to the command line and back."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass

from ..attention import ATTENTION_TYPES, AlphaConfig
from ..errors import UserError

ALPHA_FIELDS = tuple(field.name for field in fields(AlphaConfig))
# Of these, a normalizer set for one attention type alone makes the model-wide setting void there.
_ONLY_FOR_MOVING_ALPHA = ("fixed_alpha", "alpha_schedule")


@dataclass
class _AlphaFlags(FairseqDataclass, AlphaConfig):
    """AlphaConfig in the shape fairseq makes flags from."""


def add_alpha_flags(parser) -> None:
    """Add a flag for each field of AlphaConfig, and the same for each attention type.

    For instance ``--alpha-init`` and ``--encoder-self-alpha-init``.
    """
    gen_parser_from_dataclass(parser, _AlphaFlags(), delete_default=True, with_prefix="")
    for attention_type in ATTENTION_TYPES:
        prefix = "--" + attention_type.replace("_", "-")
        gen_parser_from_dataclass(parser, _AlphaFlags(), delete_default=True, with_prefix=prefix)
    parser.add_argument("--alpha-log", metavar="FILE", help="append every α to this file, in JSON lines")
    parser.add_argument(
        "--alpha-log-interval", type=int, metavar="N", help="updates between two lines of it (default: 100)"
    )


def alpha_configs(args) -> dict[str, AlphaConfig]:
    """The settings of each attention type: its own flag where given, else the flag for all, else the default.

    Raises:
        UserError: a value is wrong, or values do not go together.
    """
    interval = getattr(args, "alpha_log_interval", None)
    if interval is not None and (not isinstance(interval, int) or interval <= 0):
        raise UserError(f"--alpha-log-interval must be a positive whole number, not {interval!r}")
    return {attention_type: _alpha_config(args, attention_type) for attention_type in ATTENTION_TYPES}


def _alpha_config(args, attention_type: str) -> AlphaConfig:
    common = _given(args, "")
    own = _given(args, attention_type + "_")
    if own.get("attention_normalizer", "entmax") != "entmax":
        common = {name: value for name, value in common.items() if name not in _ONLY_FOR_MOVING_ALPHA}
    try:
        return AlphaConfig(**{**common, **own})
    except UserError as error:
        raise UserError(f"{attention_type}: {error}" if own else str(error)) from None


def _given(args, prefix: str) -> dict:
    values = {name: getattr(args, prefix + name, None) for name in ALPHA_FIELDS}
    return {name: value for name, value in values.items() if value is not None}
