"""Published parallel text, the origin of most corpora: plain, TMX, SGM or XML files, possibly in archives.

A corpus lists the file names of each split (see ``sources``). A file in an archive is named as if the archive
were a folder: ``dev.tgz/dev/newsdev2016-roen-src.ro.sgm``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from ..errors import UserError
from ..io import leads_out, within
from . import stamps
from .archives import extract, is_archive, split_name
from .checksums import checksums, difference
from .corpus import Corpus
from .download import download
from .readers import read_pairs
from .readers.left_out import OUTSIDE
from .split_sources import HeldOut, Source, file_names, sources_of

logger = logging.getLogger(__name__)
Item = TypeVar("Item")


def check(corpus: Corpus) -> None:
    """Raise UserError unless ``corpus.yaml`` specifies the files of every split."""
    file_names(corpus.description)
    for split in corpus.test_sets if corpus.description.tokenised else ():
        if not all(source.references for source in sources_of(corpus.description, split)):
            raise corpus.description.error(
                "tokenised", f"tokenised: {split} requires a reference, the untokenised text to score against"
            )


def inputs(corpus: Corpus, raw: Path | None) -> dict[str, str]:
    """The sha256 checksum of every raw file; missing files are downloaded to ``corpus.raw``.

    Files in a user's folder ``raw`` are used as they are: content that differs from the published one causes
    a warning, a missing file is an error.
    """
    folder = raw or corpus.raw
    digests = {}
    for name in _raw_files(corpus):
        published = corpus.description.downloads.get(name)
        path = find(corpus, name, folder)
        if path is None:
            if raw is not None or published is None:
                raise _absent(name, folder)
            # Text may be published compressed or plain; the local name says which it should be here.
            packed = published.urls[0].endswith(".gz") and not is_archive(name) and not name.endswith(".gz")
            path = download(published, folder / (f"{name}.gz" if packed else name), corpus.folder)
        elsewhere = None if folder not in path.parents else leads_out(folder, path)
        if elsewhere is not None:
            logger.warning("warning: %s is a link; reading %s", path, elsewhere)
        known = published.checksums if published is not None else {}
        found = checksums(path, dict.fromkeys(["sha256", *known]))
        digests[name] = found["sha256"]
        wrong = difference(found, published) if published is not None else None
        if wrong:
            logger.warning("warning: %s is not the published file (%s); using it anyway", path, wrong)
    return digests


def available(corpus: Corpus) -> bool:
    """Whether all files are in ``corpus.raw``, so that ``inputs`` downloads nothing."""
    return all(find(corpus, name, corpus.raw) for name in _raw_files(corpus))


def extract_members(corpus: Corpus, raw: Path | None, digests: dict[str, str], force: bool) -> None:
    """Extract the members that splits are read from: raw archives → ``extracted/ARCHIVE/MEMBER``."""
    wanted: dict[str, list[str]] = {}
    for name in file_names(corpus.description):
        archive, member = split_name(name)
        if member is not None:
            wanted.setdefault(archive, []).append(member)
    for archive, members in wanted.items():
        stamp = within(corpus.folder, corpus.extracted / archive / "stamp.json")
        made_from = {"sha256": digests[archive], "members": sorted(members)}
        if stamps.is_whole(stamp, made_from) and not force:
            logger.info("extract %s: already there", archive)
            continue
        with stamps.building(stamp, made_from, corpus.folder) as build:
            extract(_require(corpus, archive, raw or corpus.raw), members, build.folder)


def held_out(corpus: Corpus) -> int | None:
    """N if every N-th pair of the training text is held out for validation; None if valid has files."""
    sources = sources_of(corpus.description, "valid")
    return sources.every if isinstance(sources, HeldOut) else None


def pairs(corpus: Corpus, split: str, raw: Path | None, left_out: Counter) -> Iterator[tuple[str, str]]:
    """The sentence pairs of a split; raises UserError if the files do not match."""
    for source in sources_of(corpus.description, split):
        pairs_of_source = _read(corpus, source, source.names, raw, left_out)
        yield from within_lines(corpus, source, pairs_of_source, left_out)


def references(corpus: Corpus, split: str, raw: Path | None) -> Iterator[tuple[str, str]] | None:
    """The pairs to score a split against, if they differ from the split; else None."""
    sources = sources_of(corpus.description, split)
    if isinstance(sources, HeldOut) or not any(source.references for source in sources):
        return None
    return (
        pair
        for source in sources
        for pair in within_lines(
            corpus,
            source,
            _read(corpus, source, source.references or source.names, raw, Counter()),
            Counter(),
        )
    )


def within_lines(corpus: Corpus, source: Source, items: Iterator[Item], left_out: Counter) -> Iterator[Item]:
    """The lines that ``source`` names; reads to the end, so that files of unequal length are noticed.

    ``left_out`` is increased by the other lines.
    """
    number = 0
    for number, item in enumerate(items, start=1):
        if source.first <= number <= (source.last or number):
            yield item
        else:
            left_out[OUTSIDE] += 1
    if source.last is not None and number < source.last:
        names = ", ".join(source.names.values())
        raise UserError(
            f"{corpus.description.path} asks for lines {source.first}-{source.last} of {names}, "
            f"which has {number:,} lines"
        )


def find(corpus: Corpus, name: str, folder: Path) -> Path | None:
    """Find ``folder/name``, or its base name if that is unique; each possibly with ``.gz``.

    Files that come with ``corpus.yaml`` lie in ``raw`` beside it, wherever the corpus is prepared.
    """
    names = [name]
    last = name.rsplit("/", 1)[-1]
    if [each.rsplit("/", 1)[-1] for each in _raw_files(corpus)].count(last) == 1:
        names.append(last)
    folders = [folder]
    if folder == corpus.raw:
        folders.append(corpus.description.path.parent / "raw")
    paths = (place / f"{each}{ending}" for place in folders for each in names for ending in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _read(
    corpus: Corpus, source: Source, names: dict[str, str], raw: Path | None, left_out: Counter
) -> Iterator[tuple[str, str]]:
    paths = (path_of(corpus, names[language], raw) for language in corpus.languages)
    return read_pairs(*paths, corpus.languages, source.form, left_out, source.translator, source.table)


def path_of(corpus: Corpus, name: str, raw: Path | None) -> Path:
    """The path of a raw file or of an extracted member."""
    archive, member = split_name(name)
    return (
        _require(corpus, name, raw or corpus.raw) if member is None else corpus.extracted / archive / member
    )


def _raw_files(corpus: Corpus) -> list[str]:
    """Archives and plain files, without duplicates."""
    return list(dict.fromkeys(split_name(name)[0] for name in file_names(corpus.description)))


def _require(corpus: Corpus, name: str, folder: Path) -> Path:
    path = find(corpus, name, folder)
    if path is None:
        raise _absent(name, folder)
    return path


def _absent(name: str, folder: Path) -> UserError:
    if is_archive(name):
        return UserError(f"{name} is not in {folder}; put it there, or name its folder with --raw")
    return UserError(
        f"neither {name} nor {name}.gz is in {folder}; put one of them there, or name their folder with --raw"
    )
