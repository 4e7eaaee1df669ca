"""The published files that a corpus is read from: finding, downloading, checking and extracting them.

A file in an archive is named as if the archive were a folder: ``dev.tgz/dev/newsdev2016-roen-src.ro.sgm``.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import shutil
import tarfile
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm

from ..errors import UserError
from ..files import ROOT, UNREADABLE
from .corpus import Corpus
from .description import Download, is_archive, split_name
from .wordpiece import FILES

logger = logging.getLogger(__name__)

TIMEOUT = 60  # seconds without a byte
AGENT = {"User-Agent": "Mozilla/5.0 (compatible; corpus preparation)"}  # some hosts reject Python's default


class RawFiles:
    """The raw files of a corpus, in ``user_folder`` or, without one, in ``corpus.raw``.

    Files missing in ``corpus.raw`` are downloaded; those in ``user_folder`` are used as they are. Files, such
    as a BERT's, are also found under ``ROOT``, which paths in configs are relative to.
    """

    def __init__(self, corpus: Corpus, user_folder: Path | None = None):
        self.corpus, self.user_folder, self.folder = corpus, user_folder, user_folder or corpus.raw
        self.extracted = Path()  # where members are extracted, see ``extract``
        self.members: dict[str, list[str]] = {}  # raw file → those to extract; none if it is no archive
        for raw, member in map(split_name, corpus.description.files()):
            self.members.setdefault(raw, []).extend([member] if member is not None else [])
        self.tokenizer: dict[str, str] = {}  # a name of FILES → the raw file's name
        if vocabulary := corpus.description.wordpiece:
            for kind in FILES:
                name = vocabulary[: vocabulary.rfind("/") + 1] + kind
                if name == vocabulary or name in corpus.description.downloads or self.find(name):
                    self.tokenizer[kind] = name
                    self.members.setdefault(name, [])

    def find(self, name: str) -> Path | None:
        """Find a file by its name, or its base name if that is unique; each possibly with ``.gz``.

        Files that come with ``corpus.yaml`` lie in ``raw`` beside it, wherever the corpus is prepared.
        """
        last = name.rsplit("/", 1)[-1]
        unique = [raw.rsplit("/", 1)[-1] for raw in self.members].count(last) == 1
        folders = [self.folder, *([] if self.user_folder else [self.corpus.description.path.parent / "raw"])]
        paths = [folder / stem for folder in folders for stem in ([name, last] if unique else [name])]
        paths = [path.with_name(path.name + ending) for path in paths for ending in ("", ".gz")]
        return next((path for path in [*paths, ROOT / name] if path.is_file()), None)

    def path_of(self, name: str) -> Path:
        """The path of a raw file, or of an extracted member; UserError if it is not there."""
        raw, member = split_name(name)
        path = self.find(raw) if member is None else self.extracted / raw / member
        if path is None:
            raise UserError(f"{raw} is not in {self.folder}; put it there, or name its folder with --raw")
        return path

    def digests(self) -> dict[str, str]:
        """The sha256 checksum of every file, after downloading those that are missing."""
        return {name: self._digest(name) for name in self.members}

    def _digest(self, name: str) -> str:
        published = self.corpus.description.downloads.get(name)
        if published is not None and self.user_folder is None and self.find(name) is None:
            # Text may be published compressed or plain; the local name says which it is.
            packed = published.urls[0].endswith(".gz") and not name.endswith(".gz")
            download(published, self.folder / (f"{name}.gz" if packed and not is_archive(name) else name))
        path = self.path_of(name)
        if published is not None and not _is_published(path, published):
            logger.warning("warning: %s is not the published file; using it anyway", path)
        return checksum(path, "sha256")

    def extract(self, folder: Path) -> None:
        """Extract the members that text is read from: archives → ``folder/ARCHIVE/MEMBER``."""
        self.extracted = folder
        for archive, members in self.members.items():
            if members:
                extract(self.path_of(archive), set(members), folder / archive)


def download(published: Download, target: Path) -> None:
    """Download a file, whole or not at all, from the first mirror that has it; UserError if none has."""
    part, reasons = target.with_name(f"part.{target.name}"), []
    part.parent.mkdir(parents=True, exist_ok=True)
    for url in published.urls:
        try:
            _fetch(url, part)
            if _is_published(part, published):
                part.replace(target)
                return
            reasons.append(f"{url} is not the published file")
        except (OSError, ValueError, HTTPException) as error:  # UserError is a ValueError
            reasons.append(f"{url}: {getattr(error, 'reason', None) or error}")
    part.unlink(missing_ok=True)
    raise UserError(f"cannot download {target.name}: {'; '.join(reasons)}")


def _fetch(url: str, part: Path) -> None:
    request = urllib.request.Request(url, headers=AGENT)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, part.open("wb") as file:
        size = int(answer.headers.get("Content-Length") or 0)
        with tqdm.wrapattr(answer, "read", total=size or None, desc=part.name) as counted:
            shutil.copyfileobj(counted, file, 1 << 20)
        if size and file.tell() != size:
            raise OSError(f"the connection broke after {file.tell():,} of {size:,} bytes")


def _is_published(path: Path, published: Download) -> bool:
    wanted = {"sha256": published.sha256, "sha1": published.sha1, "md5": published.md5}
    return all(checksum(path, algorithm) == digest for algorithm, digest in wanted.items() if digest)


def checksum(path: Path, algorithm: str) -> str:
    """Hexadecimal checksum of a file, decompressed if it is a ``.gz`` but not an archive."""
    digest, packed = hashlib.new(algorithm), path.suffix == ".gz" and not is_archive(path.name)
    try:
        with (gzip.open if packed else open)(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except UNREADABLE as error:
        raise UserError(f"cannot read {path}: {error}") from None
    return digest.hexdigest()


def extract(archive: Path, members: set[str], folder: Path) -> None:
    """Extract the named members to ``folder`` and nothing else; UserError if one is not there or damaged."""
    missing = set(members)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                for name in members & set(file.namelist()):
                    _write(file.open(name), folder / name)
                    missing.discard(name)
        else:
            with tarfile.open(archive, "r|*") as file:
                for entry in tqdm(file, desc=f"extract {archive.name}", unit=" files", disable=None):
                    name = entry.name.removeprefix("./")
                    if name in missing and entry.isreg():
                        _write(file.extractfile(entry), folder / name)
                        missing.discard(name)
    except (*UNREADABLE, tarfile.TarError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the archive {archive}: {error}") from None
    if missing:
        raise UserError(f"{archive} has no member {min(missing)}")


def _write(content, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
