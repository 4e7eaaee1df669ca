"""The format of release archives, and reading them without trusting them.

An archive is an uncompressed tar of regular files. The first, ``manifest.json``, has the size and SHA-256 of
every other: ``{"format": 1, "corpus": NAME, "files": {NAME: {"bytes": N, "sha256": DIGEST}}}``. All files are
at the top level and have the names of :data:`NAMES`, so none can be written elsewhere. Nothing is compressed,
so an archive never unpacks to more than its own size. The checkpoint is a safetensors file
(:mod:`~user_dir.safetensors_checkpoints`); its matrices may be in 8 bits (:mod:`~user_dir.eight_bits`), and
take four times as much in memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from msgspec import Struct

from ..errors import UserError, one_line
from ..faults import find_fault
from ..io import atomic_write, durable, name_fault, parse_json, shown
from ..schema import pattern, whole

MANIFEST = "manifest.json"
CARD, CHECKPOINT, DESCRIPTION = "README.md", "model.safetensors", "corpus.yaml"
CHECKPOINTS = (CHECKPOINT, "model.int8.pt", "model.pt")
"""Names of the checkpoint: as it is written, and as earlier versions wrote it."""
NAMES = (
    r"README\.md|model\.safetensors|model(\.int8)?\.pt|corpus\.yaml|spm\.model|vocab\.txt|tokenizer\.json|dict\.[A-Za-z0-9_]{1,50}\.txt"
    r"|adaptively_sparse-[0-9A-Za-z_.+]{1,50}-py3-none-any\.whl"
)
_MAX_MANIFEST = 1 << 16  # bytes
_CHUNK = 1 << 20


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """What a manifest says of a file."""

    bytes: whole()
    sha256: pattern("[0-9a-f]{64}", "64 hexadecimal digits")


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What an archive contains: the corpus's name, and the size and SHA-256 of each file."""

    format: Literal[1]
    corpus: str
    files: dict[pattern(NAMES, "the name of a file of a release"), Entry]

    def __post_init__(self) -> None:
        fault = name_fault(self.corpus)
        if fault is not None:
            raise ValueError(f"corpus is {shown(self.corpus)}, which {fault}")


def is_release(path: Path) -> bool:
    """Whether a file is an archive, or at least named like one; a checkpoint is a zip file or a pickle."""
    if path.suffix == ".tar":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _is_tar(file.read(tarfile.BLOCKSIZE))


def place_of(name: str) -> Path:
    """Where a file of an archive is unpacked to: the same place as in the folder of a prepared corpus."""
    if name.startswith("dict."):
        return Path("bin") / name
    return Path("text") / name if name in ("vocab.txt", "tokenizer.json") else Path(name)


def write_archive(corpus: str, files: Mapping[str, bytes], output: Path) -> Manifest:
    """Write an archive; equal files give equal bytes."""
    entries = {
        name: Entry(len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()
    }
    manifest = Manifest(1, corpus, entries)
    first = json.dumps(msgspec.to_builtins(manifest), indent=1, ensure_ascii=False)
    with atomic_write(output) as beside, beside.open("wb") as file:
        with tarfile.open(fileobj=file, mode="w:", format=tarfile.USTAR_FORMAT) as archive:
            for name, content in {MANIFEST: f"{first}\n".encode(), **files}.items():
                entry = tarfile.TarInfo(name)  # neither owner nor time
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        durable(file)
    return manifest


def unpack(archive: Path, folder: Path) -> Manifest:
    """Unpack an archive to ``folder``, checking everything that its manifest says.

    Raises:
        UserError: it is no archive, is damaged, or contains other files than its manifest lists.
    """
    if not archive.is_file():
        raise UserError(f"no release archive {archive}")
    try:
        with archive.open("rb") as file:
            return _unpack(archive, file, folder)
    except OSError as error:
        raise UserError(f"cannot unpack {archive}: {error.filename or folder}: {error.strerror}") from None


def _unpack(archive: Path, file: BinaryIO, folder: Path) -> Manifest:
    if not _is_tar(file.read(tarfile.BLOCKSIZE)):
        raise UserError(f"{archive} is not a release archive")
    file.seek(0)
    first = _next_entry(archive, file)
    if first is None or first.name != MANIFEST or not 0 < first.size <= _MAX_MANIFEST:
        raise UserError(f"{archive} is not a release archive: it does not begin with a {MANIFEST}")
    content = io.BytesIO()
    _transfer(archive, file, first, content)
    manifest = _read_manifest(archive, content.getvalue())
    left = dict(manifest.files)
    while (entry := _next_entry(archive, file)) is not None:
        if entry.name not in left:
            fault = "a second time" if entry.name in manifest.files else "which its manifest does not list"
            raise UserError(f"{archive} contains {shown(entry.name)}, {fault}; do not use it")
        listed = left.pop(entry.name)
        if entry.size != listed.bytes:
            raise UserError(
                f"{archive}: {entry.name} has {entry.size:,} bytes instead of {listed.bytes:,}; get it again"
            )
        target = folder / place_of(entry.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            found = _transfer(archive, file, entry, copy)
        if found != listed.sha256:
            raise UserError(
                f"{archive} is damaged or was changed: the SHA-256 of {entry.name} is {found} instead of "
                f"{listed.sha256}; get it again"
            )
    if left:
        raise UserError(f"{archive} lacks {', '.join(left)}, which its manifest lists; get it again")
    if file.read(tarfile.RECORDSIZE).strip(b"\0") or file.read(1):
        raise UserError(f"{archive} has something behind its end; do not use it")
    return manifest


def _is_tar(block: bytes) -> bool:
    return block[257:262] == b"ustar"


def _next_entry(archive: Path, file: BinaryIO) -> tarfile.TarInfo | None:
    """The next entry of a tar, which must be a regular file; None at its end.

    Entries are read one by one, without tarfile's extensions, which may take memory or claim any size.
    """
    block = file.read(tarfile.BLOCKSIZE)
    if block == bytes(tarfile.BLOCKSIZE):
        return None
    try:
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise UserError(f"{archive} is damaged or cut short ({one_line(error)}); get it again") from None
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise UserError(f"{archive}: {shown(entry.name)} is a link, a folder or the like; do not use it")
    return entry


def _transfer(archive: Path, file: BinaryIO, entry: tarfile.TarInfo, target: BinaryIO) -> str:
    """Copy the content of an entry; returns its SHA-256."""
    digest, left = hashlib.sha256(), entry.size
    while left:
        chunk = file.read(min(left, _CHUNK))
        if not chunk:
            raise UserError(f"{archive} is cut short: it ends within {entry.name}; get it again")
        left -= len(chunk)
        digest.update(chunk)
        target.write(chunk)
    if file.read(-entry.size % tarfile.BLOCKSIZE).strip(b"\0"):
        raise UserError(f"{archive} is damaged: something follows {entry.name}; get it again")
    return digest.hexdigest()


def _read_manifest(archive: Path, content: bytes) -> Manifest:
    try:
        values = parse_json(content.decode())
    except ValueError:  # including invalid UTF-8
        raise UserError(f"{archive}: its {MANIFEST} is not JSON; get it again") from None
    found = find_fault(values, Manifest)
    if found is not None:
        raise UserError(
            f"{archive}: its {MANIFEST} is not that of a release: {found.message}; get it again, or use the "
            "version of the package that wrote it"
        )
    return msgspec.convert(values, Manifest)
