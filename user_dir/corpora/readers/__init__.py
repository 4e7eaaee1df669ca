"""Formats of parallel text; each module registers a reader under the format's name in ``corpus.yaml``.

Readers registered with :func:`of_side` yield the sentences of one side; with :func:`of_pairs`, pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import islice, zip_longest
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated

from msgspec import Meta, Struct

from ...errors import UserError
from ...files import OPENERS

Pairs = Iterator[tuple[str, str]]  # source, target


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that a split is read from, by side: a language, or src, mt and pe."""

    file: dict[str, str]  # the same file for both sides if it contains both
    format: str  # a key of FORMATS
    reference: dict[str, str] | None = None  # files to score against, if others than ``file``
    lines: Annotated[str, Meta(pattern="^[1-9][0-9]*-[1-9][0-9]*$")] | None = None  # FIRST-LAST, from 1
    columns: dict[str, Annotated[int, Meta(ge=1)]] | None = None  # number by language, from 1
    separator: Annotated[str, Meta(pattern=r'^[^"\r\n]$')] = "\t"  # of columns


FORMATS: dict[str, Callable[[list[Path], tuple[str, str], Source], Pairs]] = {}
ENDINGS: dict[str, str] = {}
"""Extension of a file → its format; ``lines`` for all others."""
ONE_FILE: set[str] = set()
"""Formats with both sides in one file."""


def of_side(name: str, *endings: str) -> Callable:
    """Register a reader of one side: path → sentences. Sentences at the same place form a pair."""

    def register(read: Callable[[Path], Iterator[str]]) -> Callable:
        of_pairs(name, *endings, one_file=False)(partial(_side_by_side, read))
        return read

    return register


def of_pairs(name: str, *endings: str, one_file: bool = True) -> Callable:
    """Register a reader of pairs: the paths of all sides, the languages, the :class:`Source` → pairs."""

    def register(read: Callable[[list[Path], tuple[str, str], Source], Pairs]) -> Callable:
        FORMATS[name] = read
        ENDINGS.update(dict.fromkeys(endings, name))
        ONE_FILE.update([name] if one_file else [])
        return read

    return register


def ending_of(name: str) -> str:
    """The extension of a file, compressed or not, without the dot."""
    for ending in OPENERS:
        name = name.removesuffix(ending)
    return name.rsplit(".", 1)[-1]


def format_of(name: str) -> str:
    """The format implied by the extension of a file."""
    return ENDINGS.get(ending_of(name).lower(), "lines")


def read_pairs(paths: list[Path], languages: tuple[str, str], source: Source) -> Pairs:
    """The pairs of a source, whose files are at ``paths``.

    Raises:
        UserError: the files are not parallel, one is damaged, or they lack some of ``source.lines``.
    """
    pairs = FORMATS[source.format](paths, languages, source)
    if source.lines is None:
        yield from pairs
        return
    first, last = map(int, source.lines.split("-"))
    number = 0
    for number, pair in enumerate(islice(pairs, last), start=1):
        if number >= first:
            yield pair
    if number < max(first, last):
        raise UserError(f"{paths[0]} has no lines {source.lines}, which corpus.yaml names")


def _side_by_side(read: Callable, paths: list[Path], languages: tuple[str, str], source: Source) -> Pairs:
    """Pairs of two files; only blank lines may be left over at the end of one."""
    ended = None
    for number, sides in enumerate(zip_longest(*map(read, paths)), start=1):
        if None not in sides:
            yield sides
            continue
        ended = ended or f"{paths[sides.index(None)]} has {number - 1:,} sentences"
        if any(side and side.strip() for side in sides):
            raise UserError(f"{paths[0]} and {paths[1]} are not parallel: {ended}, the other has more")


for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __name__)

from .lines import read_lines  # noqa: E402, F401
