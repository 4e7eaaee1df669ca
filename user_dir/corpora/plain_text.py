"""The family of corpora published as plain text: one file a language, one sentence a line, perhaps gzipped.

A corpus of this family gives, for each split, a file name holding ``{language}``, or a list of them.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..errors import UserError
from .corpus import Corpus
from .download import content_sha256, download

logger = logging.getLogger(__name__)


def check(corpus: Corpus) -> None:
    """Raise a ``UserError`` unless every split is a file name with ``{language}``, or a list of such."""
    for name in corpus.subsets:
        for member in _members(corpus, name):
            if not isinstance(member, str) or "{language}" not in member:
                raise UserError(
                    f"{corpus.description.path}: splits: {name} is {member!r}, "
                    "but must be a file name with {language} in it"
                )
    if corpus.description.options:
        given = ", ".join(map(str, corpus.description.options))
        raise UserError(f"{corpus.description.path}: the family plain_text has no options, but got {given}")


def inputs(corpus: Corpus, raw: Path | None) -> dict[str, str]:
    """File name → sha256 of its content, for all files; those not yet in ``corpus.raw`` are downloaded.

    Files in a folder ``raw`` of the user's are taken as they are: another content than the published one is
    only warned of, a missing one is an error.
    """
    folder = raw or corpus.raw
    digests = {}
    for name in _files(corpus):
        source = corpus.description.downloads.get(name)
        path = find(name, folder)
        if path is None:
            if raw is not None or source is None:
                raise UserError(f"{folder} holds neither {name} nor {name}.gz; put one of them there")
            path = download(source.url, folder / source.url.rsplit("/", 1)[-1], source.sha256)
        digests[name] = content_sha256(path)
        if source is not None and source.sha256 not in (None, digests[name]):
            logger.warning(
                "warning: %s is not the published file (sha256 %s instead of %s); going on with yours",
                path,
                digests[name],
                source.sha256,
            )
    return digests


def available(corpus: Corpus) -> bool:
    """Whether all files are in ``corpus.raw``, so that ``inputs`` has nothing to download."""
    return all(find(name, corpus.raw) for name in _files(corpus))


def pairs(corpus: Corpus, split: str, raw: Path | None) -> Iterator[tuple[str, str]]:
    """The sentence pairs of a split; files of unequal length raise a ``UserError`` with both counts."""
    for member in _members(corpus, split):
        source, target = (
            _require(member.replace("{language}", each), raw or corpus.raw) for each in corpus.languages
        )
        yield from read_pairs(source, target)


def find(name: str, folder: Path) -> Path | None:
    """``folder/name``, or else ``folder/name.gz``, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Lines of two files side by side; unequal numbers of lines raise a ``UserError`` at the end."""
    count = {source: 0, target: 0}
    for left, right in zip_longest(read_lines(source), read_lines(target)):
        count[source] += left is not None
        count[target] += right is not None
        if left is not None and right is not None:
            yield left, right
    if count[source] != count[target]:
        raise UserError(
            f"{source} has {count[source]:,} lines, but {target} has {count[target]:,}: "
            "they are not line by line translations; get both files again"
        )


def read_lines(path: Path) -> Iterator[str]:
    r"""Lines of a UTF-8 file, plain or ``.gz``, ended by "\n" or "\r\n" and by nothing else.

    U+2028, U+0085 and the like stay in the line. A "\r" inside a line becomes a space, since many programs
    would take it for the end of one; a byte order mark is dropped.
    """
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"{path}, line {number}: byte {line[error.start]:#04x} is not UTF-8; "
                        "convert the file to UTF-8"
                    ) from None
                yield text.rstrip("\n").rstrip("\r").replace("\r", " ")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is not a whole gzip file; get it again") from None


def _members(corpus: Corpus, split: str) -> list[Any]:
    value = corpus.description.splits[split]
    return value if isinstance(value, list) else [value]


def _files(corpus: Corpus) -> list[str]:
    members = [member for split in corpus.subsets for member in _members(corpus, split)]
    return list(dict.fromkeys(m.replace("{language}", each) for m in members for each in corpus.languages))


def _require(name: str, folder: Path) -> Path:
    path = find(name, folder)
    if path is None:
        raise UserError(f"{folder} holds neither {name} nor {name}.gz; put one of them there")
    return path
