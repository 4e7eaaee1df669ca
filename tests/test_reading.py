"""Compressed files are read as written, with bounded memory."""

from __future__ import annotations

import bz2

import pytest
from helpers import write_packed

from user_dir.analysis.statistics_file import read_statistics
from user_dir.analysis.trajectories import read_alpha_log
from user_dir.corpora.readers import read_lines
from user_dir.errors import UserError
from user_dir.io import packed_or_plain, read_text

READERS = [
    lambda path: list(read_lines(path)),
    lambda path: read_text(path, "it"),
    read_statistics,
    read_alpha_log,
]


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "new" / "a.txt.bz2"
    write_packed(path, "α\nein Satz\n")
    first = path.read_bytes()
    assert read_text(path, "it") == "α\nein Satz\n" and list(read_lines(path)) == ["α", "ein Satz"]
    write_packed(path, "α\nein Satz\n")
    assert path.read_bytes() == first, "of the same text the same file"


def test_the_plain_file_comes_first(tmp_path):
    plain, packed = tmp_path / "a", tmp_path / "a.bz2"
    assert packed_or_plain(plain) == plain
    write_packed(packed, "packed")
    assert packed_or_plain(plain) == packed
    plain.write_text("plain")
    assert packed_or_plain(plain) == plain


@pytest.mark.parametrize("read", READERS)
def test_a_decompression_bomb_is_refused(tmp_path, read):
    path = tmp_path / "bomb.bz2"
    path.write_bytes(bz2.compress(bytes(999_999) + b"\n") * 2_000)  # 2 GB
    with pytest.raises(UserError, match=r"bomb\.bz2( unpacks to more than \d+ MiB|, line 1 is not)"):
        read(path)


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"plain text", "not a bzip2 file"),
        (bz2.compress(b"text" * 100)[:-9], "truncated"),
        (b"", "truncated"),
    ],
)
@pytest.mark.parametrize("read", READERS)
def test_broken_files_are_refused(tmp_path, read, content, reason):
    path = tmp_path / "a.bz2"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.bz2.*{reason}"):
        read(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"cannot read it .*a\.bz2: No such file"):
        read_text(tmp_path / "a.bz2", "it")


def test_files_that_are_not_text_are_refused(tmp_path):
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(b"\xff\xfe"))
    with pytest.raises(UserError, match=r"cannot read the log .*a\.bz2: it is not text"):
        read_text(path, "the log")
