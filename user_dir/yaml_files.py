"""YAML files within limits: as plain data, as a type of :mod:`.schema`, and with the lines of its keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from .errors import UserError, one_line
from .faults import Steps, find_fault
from .io import read_text, shown

MAX_YAML = 1 << 17
"""Bytes of a YAML file, which takes seconds to read; ours have 4,000."""
VALUES, DEPTH = 100_000, 20  # limits of the values of a YAML file and of their nesting; ours have 300 and 5
INTEGER, BITS = "tag:yaml.org,2002:int", 63  # limit of a whole number in YAML
T = TypeVar("T")


def read_yaml_as(path: Path, kind: type[T]) -> tuple[T, yaml.Node]:
    """Read a YAML file as a Struct; also returns its root node, for :func:`line_of`.

    Raises:
        UserError: see :func:`read_yaml`; or it does not fit, with the line.
    """
    values, node = read_yaml(path)
    found = find_fault(values, kind)
    if found is not None:
        raise UserError(f"{line_of(path, node, found.steps)}: {found.message}")
    return msgspec.convert(values, kind), node


def read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    """Read a YAML file: its plain data, and its root node, which has the line of each key.

    Raises:
        UserError: the file cannot be read, is not YAML with plain data, has a key twice, a number beyond 64
            bits or to the base 8 or 60, or more than 100,000 values or 20 levels when its aliases and merges
            are expanded.
    """
    text = read_text(path, "the YAML file", most=MAX_YAML)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            _check_nodes(path, node, 0, {})
        return yaml.safe_load(text), node  # not made of this node, which would lose its merges and lines
    except UserError:
        raise
    # ValueError: an invalid date or number; TypeError: an invalid key.
    except (yaml.YAMLError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{path} is not valid YAML: {one_line(error)}") from None


def _check_nodes(
    path: Path, node: yaml.Node, depth: int, measured: dict[int, tuple[int, int]]
) -> tuple[int, int]:
    """The values and levels below a node; raises UserError if there are too many, or for a fault of a node.

    A file of a few lines can stand for billions of values: yaml copies those of merges, and callers walk all.
    ``measured`` has those of the nodes before, which aliases share.
    """
    values, levels = measured.get(id(node), (1, 0))
    if depth <= DEPTH and id(node) not in measured:
        if isinstance(node, yaml.MappingNode):
            _check_keys(path, node)
        for entry in node.value if isinstance(node, yaml.CollectionNode) else ():
            for inner in entry if isinstance(entry, tuple) else (entry,):
                more, below = _check_nodes(path, inner, depth + 1, measured)
                values, levels = values + more, max(levels, below + 1)
        if node.tag == INTEGER:
            _check_integer(path, node)
        measured[id(node)] = values, levels
    if values > VALUES or depth + levels > DEPTH:
        raise UserError(
            f"{path} is too large for the description of a corpus, an experiment or a training: over "
            f"{VALUES:,} values or {DEPTH} levels; check its YAML aliases and merges"
        )
    return values, levels


def _check_integer(path: Path, node: yaml.ScalarNode) -> None:
    """Raise UserError for a number beyond 64 bits, or one that was hardly meant."""
    where, value = f"{path}, line {node.start_mark.line + 1}", node.value
    if re.fullmatch(r"[+-]?(0[0-9_]+|[0-9_]+:.*)", value):
        raise UserError(
            f"{where}: YAML reads {shown(value)} as a number to the base 8 (leading zero) or 60 (colon); "
            "omit the zero, or put text in quotes"
        )
    if len(value) > BITS // 4:
        bits = yaml.constructor.SafeConstructor().construct_yaml_int(node).bit_length()
        if bits > BITS:
            raise UserError(f"{where}: a number has {bits} bits; at most {BITS} are allowed")


def _check_keys(path: Path, node: yaml.MappingNode) -> None:
    """Raise UserError if a mapping has a key twice, of which yaml would keep the last."""
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        line, name = key.start_mark.line + 1, (key.tag, key.value)
        if isinstance(key, yaml.CollectionNode):
            continue
        if name in lines:
            raise UserError(f"{path}, line {line}: {key.value!r} is a duplicate of line {lines[name]}")
        lines[name] = line


def line_of(path: Path, node: yaml.Node | None, steps: Steps) -> str:
    """A YAML file with the line of a place in it, or of what surrounds a place that a merge brings."""
    line = None
    for step in steps:
        marked = None
        if isinstance(node, yaml.MappingNode):
            pairs = {key.value: (key, inner) for key, inner in node.value if isinstance(key, yaml.ScalarNode)}
            marked, node = pairs.get(str(step), (None, None))
        elif isinstance(node, yaml.SequenceNode):
            marked = node = node.value[step]
        if marked is None:
            break
        line = marked.start_mark.line + 1
    return str(path) if line is None else f"{path}, line {line}"
