import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from user_dir.corpora.readers import read_lines
from user_dir.errors import UserError


def lines_of(tmp_path, data, name="file"):
    path = tmp_path / name
    path.write_bytes(data)
    return list(read_lines(path))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\n\n", ["", ""]),
        (b" a \n", [" a "]),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf"]),
        (b"a\rb\n", ["a b"]),
        ("\ufeffa\nb\n".encode(), ["a", "b"]),
    ],
)
def test_lines_end_at_newlines_only(tmp_path, data, lines):
    assert lines_of(tmp_path, data) == lines
    assert lines_of(tmp_path, gzip.compress(data), "file.gz") == lines


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"))))
def test_any_lines_are_read_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


def test_invalid_utf8_names_file_and_line(tmp_path):
    with pytest.raises(UserError, match=r"file, line 2: byte 0xe4 is not UTF-8; convert"):
        lines_of(tmp_path, "gut\nschläft\n".encode("latin-1"))


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b"text\n" * 1000, mtime=0)[:-20]])
def test_a_corrupt_gzip_file(tmp_path, data):
    with pytest.raises(UserError, match=r"file\.gz is (not a|a truncated or damaged) gzip file"):
        lines_of(tmp_path, data, "file.gz")
