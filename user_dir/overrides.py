"""Settings given on the command line, as ``section.key=value``, in hydra's grammar."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from .errors import UserError, one_line


def hydra_override(override: str, is_text: Callable[[str, str], bool] = lambda section, key: False) -> str:
    """Convert ``section.key=value`` to hydra's grammar, so that it sets existing and new keys.

    Text is taken literally, unless it is in quotes, is ``null`` or refers to other settings (``${…}``). Other
    values are read by hydra; one that hydra cannot read is taken literally, too, for the check of its type.
    Overrides in hydra's grammar (``+key=value``, ``++key=value``, ``~key``) are unchanged.

    Args:
        override: as given.
        is_text: whether a setting is text, by section and key.

    Raises:
        UserError: it has no ``=``, or hydra cannot read it.
    """
    if override.startswith(("+", "~")):
        parse_override(override)
        return override
    key, equals, value = override.partition("=")
    if not equals:
        raise UserError(f"{override!r} is not of the form section.key=value")
    section, _, inner = key.partition(".")
    literal = (
        is_text(section, inner) and value not in ("", "null") and "${" not in value and not _quoted(value)
    )
    if literal or not _is_one_value(f"++{override}"):
        override = f"{key}={quoted(value)}"
        parse_override(f"++{override}")  # the key
    return "++" + override


def quoted(text: str) -> str:
    """Text in quotes, which hydra reads as it is."""
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", text) + "'"


@functools.cache
def parse_override(override: str):
    """hydra's reading of an override in its grammar; raises UserError, which names it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hydra versions
        try:
            return OverridesParser.create().parse_override(override)
        except HydraException as error:
            raise UserError(f"hydra cannot read {override}: {one_line(error)}") from None


def _quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] and value[0] in "'\""


def _is_one_value(override: str) -> bool:
    """Whether hydra reads one value, and not several, of a sweep."""
    try:
        return not parse_override(override).is_sweep_override()
    except UserError:
        return False
