"""The published files that a corpus is read from, possibly in archives.

A file in an archive is named as if the archive were a folder: ``dev.tgz/dev/newsdev2016-roen-src.ro.sgm``.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ..checkout import ROOT
from ..errors import UserError
from ..io import leads_out, within
from . import stamps
from .archives import extract, is_archive, split_name
from .bert_tokenizer import FILES, TOKENIZER, VOCABULARY, BertTokenizer, read_tokenizer
from .checksums import checksums, difference
from .corpus import Corpus
from .description import Description
from .download import download
from .split_sources import file_names

logger = logging.getLogger(__name__)


class RawFiles:
    """The raw files of a corpus, in a folder of the user's or else in ``corpus.raw``.

    What ``corpus.raw`` lacks is downloaded. Files in a user's folder are used as they are: content that
    differs from the published one causes a warning, a missing file is an error. The tokenizer of a BERT may
    also lie where a config's ``bert`` is relative to.
    """

    def __init__(self, corpus: Corpus, given: Path | None = None):
        self.corpus, self.given = corpus, given
        self.folder = given or corpus.raw
        self._members: dict[str, list[str]] = {}  # of each raw file; none of plain text
        for raw, member in map(split_name, file_names(corpus.description)):
            self._members.setdefault(raw, []).extend([member] if member is not None else [])
        self._add_tokenizer(corpus.description)

    def _add_tokenizer(self, description: Description) -> None:
        """Add what says how a BERT treats text, where it is beside the vocabulary or can be downloaded."""
        self.tokenizer: dict[str, str] = {}
        self._of_bert: set[str] = set()
        named = description.wordpiece
        if named is None:
            return
        self.tokenizer[TOKENIZER if named.endswith(".json") else VOCABULARY] = named
        folder = named[: named.rfind("/") + 1]
        others = {name: f"{folder}{name}" for name in FILES if name not in self.tokenizer}
        self._of_bert = {named, *others.values()}
        self._members |= {name: [] for name in others.values()}
        for kind, name in others.items():
            if self.find(name) is None and name not in description.downloads:
                del self._members[name]
            else:
                self.tokenizer[kind] = name

    def read_tokenizer(self) -> BertTokenizer:
        """The tokenizer of the BERT whose vocabulary the corpus has; see :func:`.read_tokenizer`."""
        return read_tokenizer({kind: self.path_of(name) for kind, name in self.tokenizer.items()})

    def find(self, name: str) -> Path | None:
        """Find a file by its name, or its base name if that is unique; each possibly with ``.gz``.

        Files that come with ``corpus.yaml`` lie in ``raw`` beside it, wherever the corpus is prepared.
        """
        last = name.rsplit("/", 1)[-1]
        unique = [raw.rsplit("/", 1)[-1] for raw in self._members].count(last) == 1
        folders = [self.folder]
        if self.folder == self.corpus.raw:
            folders.append(self.corpus.description.path.parent / "raw")
        names = [name, last] if unique else [name]
        paths = [place / f"{each}{ending}" for place in folders for each in names for ending in ("", ".gz")]
        if name in self._of_bert:
            paths.append(ROOT / name)
        return next((path for path in paths if path.is_file()), None)

    def found(self) -> list[Path | None]:
        """The path of each file that is there, None for the others."""
        return list(map(self.find, self._members))

    def path_of(self, name: str) -> Path:
        """The path of a raw file, which must be there, or of an extracted member."""
        raw, member = split_name(name)
        if member is not None:
            return self.corpus.extracted / raw / member
        path = self.find(raw)
        if path is None:
            raise self._absent(raw)
        return path

    def digests(self) -> dict[str, str]:
        """The sha256 checksum of every file, after downloading those that are missing."""
        return {name: self._digest(name) for name in self._members}

    def _digest(self, name: str) -> str:
        published = self.corpus.description.downloads.get(name)
        path = self.find(name)
        if path is None:
            if self.given is not None or published is None:
                raise self._absent(name)
            # Text may be published compressed or plain; the local name says which it should be here.
            packed = published.urls[0].endswith(".gz") and not is_archive(name) and not name.endswith(".gz")
            path = download(published, self.folder / (f"{name}.gz" if packed else name), self.corpus.folder)
        elsewhere = leads_out(self.folder, path) if self.folder in path.parents else None
        if elsewhere is not None:
            logger.warning("warning: %s is a link; reading %s", path, elsewhere)
        known = published.checksums if published is not None else {}
        found = checksums(path, dict.fromkeys(["sha256", *known]))
        if wrong := difference(found, known):
            logger.warning("warning: %s is not the published file (%s); using it anyway", path, wrong)
        return found["sha256"]

    def extract(self, digests: dict[str, str], force: bool) -> None:
        """Extract the members that text is read from: archives → ``extracted/ARCHIVE/MEMBER``."""
        for archive, members in self._members.items():
            if not members:
                continue
            stamp = within(self.corpus.folder, self.corpus.extracted / archive / "stamp.json")
            made_from = {"sha256": digests[archive], "members": sorted(members)}
            if not stamps.is_done(f"extract {archive}", stamp, made_from, force):
                with stamps.building(stamp, made_from, self.corpus.folder) as build:
                    extract(self.path_of(archive), members, build.folder)

    def _absent(self, name: str) -> UserError:
        if name in self._of_bert:
            return UserError(
                f"wordpiece: there is no {ROOT / name}, nor {self.folder / name}; put the BERT there, or "
                f"change wordpiece in {self.corpus.description.path}"
            )
        if is_archive(name):
            return UserError(f"{name} is not in {self.folder}; put it there, or name its folder with --raw")
        return UserError(
            f"neither {name} nor {name}.gz is in {self.folder}; put one of them there, or name their folder "
            "with --raw"
        )
