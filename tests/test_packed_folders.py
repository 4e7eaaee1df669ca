"""Files of packed folders are found by their paths; damaged and hostile archives are refused."""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from user_dir.corpora.readers import read_lines
from user_dir.errors import UserError
from user_dir.experiments.records import add
from user_dir.io import packed_or_plain, read_text
from user_dir.packed_folders import expanded, member, read_archive, there

FILES = {
    "a-seed1/result.json": "{}",
    "a-seed2/result.json": "[]",
    "a-seed1/evaluation/test.en": "Ein Satz.\nNoch „einer“.\n",
    "b/result.json": "1",
}


@pytest.fixture
def runs(tmp_path) -> Path:
    add(tmp_path / "runs", FILES)
    return tmp_path / "runs"


def test_paths_lead_into_a_packed_folder(runs, monkeypatch):
    assert read_text(runs / "a-seed2" / "result.json", "it") == "[]"
    assert read_text(runs / "a-seed2" / "result.json.bz2", "it") == "[]"
    assert list(read_lines(runs / "a-seed1/evaluation/test.en.bz2")) == [
        "Ein Satz.",
        "Noch „einer“.",
    ]
    assert packed_or_plain(runs / "b" / "result.json") == runs / "b" / "result.json"
    assert there(runs / "b" / "result.json") and not there(runs / "b" / "none") and not there(runs / "b")
    monkeypatch.chdir(runs.parent)
    assert member(Path("runs/b/result.json")) == b"1"
    with pytest.raises(UserError, match="none"):
        read_text(runs / "b" / "none", "it")


def test_a_file_on_the_disk_comes_first(runs):
    (runs / "b").mkdir(parents=True)
    (runs / "b" / "result.json").write_text("2")
    (runs / "c").mkdir()
    (runs / "c" / "result.json").write_text("3")
    assert read_text(runs / "b" / "result.json", "it") == "2"
    assert read_text(runs / "a-seed1" / "result.json", "it") == "{}"
    assert [path.parent.name for path in expanded(runs / "*" / "result.json")] == [
        "a-seed1",
        "a-seed2",
        "b",
        "c",
    ]


def test_patterns_are_expanded_as_by_a_shell(runs):
    def found(pattern: str) -> list[str]:
        return [str(path.relative_to(runs)) for path in expanded(runs / pattern)]

    assert found("a-seed*/result.json") == ["a-seed1/result.json", "a-seed2/result.json"]
    assert found("*/*.json.bz2") == [
        "a-seed1/result.json.bz2",
        "a-seed2/result.json.bz2",
        "b/result.json.bz2",
    ]
    assert found("a-seed[2]/*") == ["a-seed2/result.json"]
    assert found("a-seed1/*/test.??") == ["a-seed1/evaluation/test.en"]
    assert found("*.json") == ["*.json"] and found("x*/result.json") == ["x*/result.json"]
    assert found("b/result.json") == ["b/result.json"]
    for path in runs.parent.iterdir():
        files = read_archive(path)
    for name, content in files.items():
        (runs / name).parent.mkdir(parents=True, exist_ok=True)
        (runs / name).write_bytes(content)
    path.unlink()
    assert found("a-seed*/result.json") == ["a-seed1/result.json", "a-seed2/result.json"]


def tar(*entries: tarfile.TarInfo, content: bytes = b"text", form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for entry in entries:
            entry.size = len(content) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, "/etc/passwd"
    return made


WHOLE = tar(entry("a/b.json"))
HOSTILE = {
    "absolute": lzma.compress(tar(entry("/a"))),
    "outside": lzma.compress(tar(entry("a/../../b"))),
    "here": lzma.compress(tar(entry("./a"))),
    "link": lzma.compress(tar(entry("a", tarfile.SYMTYPE))),
    "hard link": lzma.compress(tar(entry("a"), entry("b", tarfile.LNKTYPE))),
    "folder": lzma.compress(tar(entry("a", tarfile.DIRTYPE))),
    "pipe": lzma.compress(tar(entry("a", tarfile.FIFOTYPE))),
    "twice": lzma.compress(tar(entry("a"), entry("a"))),
    "long": lzma.compress(tar(entry("a" * 300))),
    "control": lzma.compress(tar(entry("a\x1b[2J"))),
    "long name of GNU": lzma.compress(tar(entry("a" * 500_000), form=tarfile.GNU_FORMAT)),
    "cut": lzma.compress(WHOLE)[:-20],
    "cut inside": lzma.compress(WHOLE[:600]),
    "more": lzma.compress(WHOLE) + b"more",
    "text": b"text",
    "empty": b"",
    "no tar": lzma.compress(b"text"),
    "bzip2": bz2.compress(WHOLE),
    "bomb": lzma.compress(bytes(65 << 20), preset=0),
    "memory": lzma.compress(WHOLE, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29}]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_damaged_and_hostile_archives_are_refused(tmp_path, what):
    path = tmp_path / "runs.tar.xz"
    path.write_bytes(lzma.compress(WHOLE))
    assert read_archive(path) == {"a/b.json": b"text"}
    path.write_bytes(HOSTILE[what])
    with pytest.raises(UserError, match=r"runs\.tar\.xz") as caught:
        read_text(tmp_path / "runs" / "a" / "b.json", "it")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300 + len(str(path))
