"""The format of release archives: what is written is read, and nothing else is."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from hashlib import sha256

import pytest
import torch
from tiny_release import entry, files_of, listed, write_tar

from user_dir.errors import UserError
from user_dir.releases.archive import Entry, is_release, unpack, write_archive

FILES = {
    "README.md": b"# A model\n",
    "model.pt": bytes(range(256)) * 100,
    "spm.model": b"",
    "vocab.txt": b"v" * 512,
    "dict.de.txt": b"a 1\n",
    "adaptively_sparse-0.1.0-py3-none-any.whl": b"wheel",
}


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "mine.tar"
    write_archive("mine", FILES, path)
    return path


def test_what_was_written_is_unpacked(archive, tmp_path):
    manifest = unpack(archive, tmp_path / "out")
    assert manifest.corpus == "mine"
    expected = {name: Entry(len(content), sha256(content).hexdigest()) for name, content in FILES.items()}
    assert manifest.files == expected
    places = {"vocab.txt": "text/vocab.txt", "dict.de.txt": "bin/dict.de.txt"}
    for name, content in FILES.items():
        assert (tmp_path / "out" / places.get(name, name)).read_bytes() == content


def test_any_tar_program_reads_it_and_it_says_nothing_of_the_machine(archive):
    with tarfile.open(archive, "r:") as file:
        members = file.getmembers()
        assert [each.name for each in members] == ["manifest.json", *FILES]
        assert {(each.mtime, each.uid, each.gid, each.uname, each.mode) for each in members} == {
            (0, 0, 0, "", 0o644)
        }
    assert json.loads(files_of(archive)["manifest.json"]).keys() == {"format", "corpus", "files"}


def test_archives_and_checkpoints_are_told_apart(archive, tmp_path):
    assert is_release(archive) and is_release(tmp_path / "missing.tar")
    assert is_release(archive.rename(tmp_path / "named otherwise"))
    for zipped in (True, False):
        torch.save({"model": {}}, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
        assert not is_release(tmp_path / "model.pt")
    assert not is_release(tmp_path / "missing.pt") and not is_release(tmp_path)


def without(name: str) -> dict[str, bytes]:
    return {key: content for key, content in FILES.items() if key != name}


def with_manifest(manifest) -> dict[str, bytes]:
    content = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    return {"manifest.json": content, **FILES}


def claiming(**changes) -> dict[str, bytes]:
    """A manifest whose entry of model.pt says something else."""
    manifest = json.loads(listed(FILES)["manifest.json"])
    manifest["files"]["model.pt"] |= changes
    return with_manifest(manifest)


def manifest_with(**changes) -> dict[str, bytes]:
    return with_manifest({"format": 1, "corpus": "mine", "files": {}} | changes)


WHOLE = listed(FILES)
HOSTILE = {
    "missing": ({"manifest.json": WHOLE["manifest.json"], **without("model.pt")}, "lacks model.pt"),
    "no manifest": (FILES, "does not begin with a manifest.json"),
    "manifest last": ({**FILES, "manifest.json": WHOLE["manifest.json"]}, "does not begin with"),
    "large manifest": (with_manifest(b" " * 70_000), "does not begin with"),
    "extra": ({**WHOLE, "evil.py": b"x"}, "contains 'evil.py', which its manifest does not list"),
    "listed extra": (
        listed({**FILES, "evil.py": b"x"}),
        "files has the key 'evil.py', which must be the name of",
    ),
    "parent": ({**WHOLE, "../evil": b"x"}, "contains '../evil'"),
    "listed parent": (listed({**FILES, "../evil": b"x"}), "the key '../evil'"),
    "listed in a folder": (listed({**FILES, "bin/dict.de.txt": b"x"}), "the key 'bin/dict.de.txt'"),
    "dictionary": (listed({**FILES, "dict./../x.txt": b"x"}), "the key 'dict./../x.txt'"),
    "wheel": (
        listed({**FILES, "adaptively_sparse-/../x-py3-none-any.whl": b""}),
        "must be the name of a file",
    ),
    "absolute": ({**WHOLE, "/tmp/evil": b"x"}, "contains '/tmp/evil'"),
    "newline": (listed({**FILES, "model.pt\n": b"x"}), "must be the name of a file"),
    "size": (claiming(bytes=3), "model.pt has 25,600 bytes instead of 3"),
    "huge": (claiming(bytes=10**15), "model.pt has 25,600 bytes instead of 1,000,000,000,000,000"),
    "checksum": (claiming(sha256="0" * 64), "the SHA-256 of model.pt is .* instead of 0000"),
    "text for a size": (claiming(bytes="3"), "files.model.pt.bytes is '3'"),
    "truth for a size": (claiming(bytes=True), "files.model.pt.bytes is True"),
    "negative size": (claiming(bytes=-1), "bytes is -1, but must be a whole number from 0"),
    "list for a checksum": (claiming(sha256=[]), r"sha256 is \[\]"),
    "short checksum": (claiming(sha256="0" * 63), "but must be 64 hexadecimal digits"),
    "more about a file": (claiming(mode=0o777), "unknown key 'mode' in files.model.pt"),
    "not JSON": (with_manifest(b"{"), "is not JSON"),
    "not UTF-8": (with_manifest(b'"\xff"'), "is not JSON"),
    "deep": (with_manifest(b"[" * 60_000), "is not JSON"),
    "digits": (with_manifest(b"9" * 60_000), "is not JSON"),
    "a list": (with_manifest([]), "it is .*, but must be a mapping"),
    "another key": (manifest_with(run="x"), "unknown key 'run'; choose from format, corpus, files"),
    "later format": (
        manifest_with(format=2),
        "format is 2, but must be 1; .* the version of the package",
    ),
    "true format": (manifest_with(format=True), "format is True"),
    "number of a corpus": (manifest_with(corpus=7), "corpus is 7, but must be text"),
    "path of a corpus": (manifest_with(corpus="../x"), "corpus is '../x', which has a '/'"),
    "list of files": (manifest_with(files=[]), r"files is \[\], but must be a mapping"),
    "number of a file": (manifest_with(files={"model.pt": 1}), "files.model.pt is 1"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_content_is_refused(case, tmp_path):
    files, message = HOSTILE[case]
    path, out = write_tar(tmp_path / "bad.tar", files), tmp_path / "inner" / "out"
    with pytest.raises(UserError, match=message) as refused:
        unpack(path, out)
    assert str(refused.value).startswith(str(path))
    written = {each for each in tmp_path.rglob("*") if each.is_file()} - {path}
    assert all(each.is_relative_to(out) for each in written)


KINDS = ("SYMTYPE", "LNKTYPE", "CHRTYPE", "BLKTYPE", "FIFOTYPE", "DIRTYPE", "CONTTYPE", "GNUTYPE_SPARSE")


@pytest.mark.parametrize("kind", [*KINDS, "GNUTYPE_LONGNAME", "XHDTYPE"])
def test_only_regular_files_are_unpacked(kind, tmp_path):
    files = listed(FILES | {"spm.model": b""})
    del files["spm.model"]
    path = write_tar(tmp_path / "bad.tar", files, entry("spm.model", getattr(tarfile, kind)))
    with pytest.raises(UserError, match=r"'spm\.model' is a link, a folder or the like"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out" / "spm.model").exists()


def test_a_file_twice_is_refused(tmp_path):
    path = write_tar(tmp_path / "bad.tar", WHOLE, entry("model.pt", tarfile.REGTYPE, ""))
    with pytest.raises(UserError, match=r"contains 'model.pt', a second time"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.5, 0.9])
def test_truncated_archives_are_refused(archive, share, tmp_path):
    content = archive.read_bytes().rstrip(b"\0")
    archive.write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match=r"is cut short|damaged or cut short|is not a release archive"):
        unpack(archive, tmp_path / "out")


def test_an_archive_without_its_end_is_refused(archive, tmp_path):
    archive.write_bytes(archive.read_bytes().rstrip(b"\0") + bytes(507))
    with pytest.raises(UserError, match="damaged or cut short"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("rest", [b"x", bytes(20_000), b"x" * 30_000])
def test_nothing_follows_the_end(archive, rest, tmp_path):
    archive.write_bytes(archive.read_bytes() + rest)
    with pytest.raises(UserError, match="has something behind its end"):
        unpack(archive, tmp_path / "out")


def test_what_is_compressed_is_no_archive(archive, tmp_path):
    """However small it is, it could unpack to anything."""
    content = archive.read_bytes()
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("manifest.json", "{}")
    for other in (gzip.compress(content), zipped.getvalue(), b"", b"text"):
        archive.write_bytes(other)
        with pytest.raises(UserError, match=r"mine\.tar is not a release archive"):
            unpack(archive, tmp_path / "out")


def test_a_missing_archive_and_a_folder(tmp_path):
    (tmp_path / "folder.tar").mkdir()
    for name in ("none.tar", "folder.tar"):
        with pytest.raises(UserError, match=f"no release archive .*{name}"):
            unpack(tmp_path / name, tmp_path / "out")
