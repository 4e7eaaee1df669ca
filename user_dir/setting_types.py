"""The types of settings, and the one rule by which a value is converted to its type.

A flag takes ``true``, ``yes``, ``on``, ``y`` and 1, or ``false``, ``no``, ``off``, ``n`` and 0, in any case;
a number also takes its text (``"1e-4"``), without leading zeros, which YAML takes for octal; text takes text
only, since YAML reads ``no`` as false and ``012`` as 10, except that ``on`` and ``off`` as two of several
choices may be read so. ``null`` stands for the default. Anything else is refused.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Union, get_args, get_origin

from fairseq.utils import eval_bool

from .checkpoints import is_literal
from .io import shown
from .sections import section_dataclass, section_flags

LIST = "a list"
TRUTHS = {"true": True, "yes": True, "on": True, "y": True, "1": True}
TRUTHS.update({"false": False, "no": False, "off": False, "n": False, "0": False})


@dataclass(frozen=True)
class SettingType:
    """What a setting takes: in words, and as a function that converts a value or raises ValueError."""

    words: str
    convert: Callable[[Any], Any]

    def __call__(self, value):
        """Convert a value; None, for the default, stays.

        Raises:
            ValueError: it is not of this type; the message completes the name of the setting.
        """
        try:
            return None if value is None else self.convert(value)
        except (ValueError, TypeError, ArithmeticError, SyntaxError, NameError, argparse.ArgumentTypeError):
            raise ValueError(f"must be {self.words}, not {shown(value)}{self._remedy(value)}") from None

    def _remedy(self, value) -> str:
        if self is TEXT and isinstance(value, (bool, int, float)):
            return "; put it in quotes"
        if self in (WHOLE_NUMBER, NUMBER) and isinstance(value, str) and re.fullmatch(r"[+-]?0\d+", value):
            return "; omit the leading zero"
        if self.words.startswith(LIST) and isinstance(value, (bool, int, float)):
            return f"; write [{value}]"
        return ""


def _truth(value):
    if type(value) in (bool, int, str):
        return TRUTHS[str(value).lower()] if str(value).lower() in TRUTHS else _refuse()
    return _refuse()


def _whole_number(value):
    if isinstance(value, str) and re.fullmatch(r"[+-]?(0|[1-9]\d{,18})", value):
        return int(value)
    return value if type(value) is int else _refuse()


def _number(value):
    if isinstance(value, str) and not re.fullmatch(r"[+-]?0\d+", value) and "_" not in value:
        value = float(value)
    if type(value) not in (int, float) or math.isnan(float(value)):
        _refuse()
    return value


def _text(value):
    return value if isinstance(value, str) else _refuse()


def _untyped(value):
    """Of a flag without a type, some of which are of numbers: fairseq's own code converts what it needs."""
    return value if isinstance(value, str) or type(value) in (int, float) else _refuse()


def _refuse():
    raise ValueError


TRUTH = SettingType("true or false", _truth)
WHOLE_NUMBER = SettingType("a whole number", _whole_number)
NUMBER = SettingType("a number", _number)
TEXT = SettingType("text", _text)
UNTYPED = SettingType("text or a number", _untyped)
_PLAIN = {bool: TRUTH, eval_bool: TRUTH, int: WHOLE_NUMBER, float: NUMBER, str: TEXT, None: UNTYPED}


def setting_types(section: str, name) -> dict[str, SettingType | None] | None:
    """The type of each setting of a section, such as ``model``, whose ``_name`` is ``name``.

    It is None where any value is accepted; there are no types, but None, of a section that is not known.
    """
    declared = section_dataclass(section, name)
    if declared is not None:
        return {field.name: _of_annotation(field.type) for field in fields(declared)}
    flags = section_flags(section, name)
    return None if flags is None else {dest: _of_flag(action) for dest, action in flags.items()}


def _of_annotation(annotation) -> SettingType | None:
    """The type of a dataclass's field; None if OmegaConf alone checks it, as enumerations."""
    if get_origin(annotation) is Union:
        inner = [each for each in get_args(annotation) if each is not type(None)]
        return _of_annotation(inner[0]) if len(inner) == 1 else None
    if get_origin(annotation) is list and get_args(annotation):
        inner = _of_annotation(get_args(annotation)[0])
        return None if inner is None else _list_of(inner)
    return _PLAIN.get(annotation) if isinstance(annotation, type) else None


def _of_flag(action: argparse.Action) -> SettingType:
    """The type of a flag."""
    if action.nargs == 0:
        return TRUTH
    flag = action.option_strings[-1] if action.option_strings else action.dest
    one = _PLAIN.get(action.type) or SettingType(f"what {flag} takes", _read_by(action.type))
    if action.choices is not None:
        one = _one_of(list(action.choices), one)
    several = action.nargs in ("*", "+") or isinstance(action.nargs, int)
    return _list_of(one) if several or isinstance(action, argparse._AppendAction) else one


def _read_by(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Of a flag whose text is read by a function, such as a list of numbers: the text, or what is read."""

    def convert(value):
        if isinstance(value, str):  # some functions evaluate it as Python
            return read(value) if is_literal(value) or re.fullmatch(r"[\w.,:/+ -]*", value) else _refuse()
        if isinstance(value, bool) or not isinstance(value, (int, float, list, tuple, dict)):
            _refuse()
        return read(value) if isinstance(value, (list, tuple)) else value

    return convert


def _one_of(choices: list, one: SettingType) -> SettingType:
    def convert(value):
        if type(value) is bool and {"on", "off"} <= set(choices):  # as YAML reads these words
            value = "on" if value else "off"
        converted = one.convert(value)
        return converted if converted in choices else _refuse()

    return SettingType(f"one of {', '.join(map(str, choices))}", convert)


def _list_of(one: SettingType) -> SettingType:
    def convert(value):
        return [one.convert(each) for each in value] if isinstance(value, (list, tuple)) else _refuse()

    return SettingType(f"{LIST}, each {one.words}", convert)
