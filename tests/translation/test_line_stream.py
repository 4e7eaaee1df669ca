"""Lines of a pipe: answered one by one where the writer waits, many together where they are there."""

from __future__ import annotations

import os
import threading

import pytest

from user_dir.corpora.readers import read_lines
from user_dir.errors import UserError
from user_dir.translation import line_stream
from user_dir.translation.line_stream import available_lines

HARD = "eins\r\nzwei\u2028drei\n\nvier\rfünf\nsechs".encode()


@pytest.fixture
def pipe():
    """Both ends of a pipe, whichever is still open closed afterwards."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_a_writer_that_waits_for_its_answer_gets_it(pipe):
    reader, writer = pipe
    chunks = available_lines(reader, "stdin")
    for line in ("eins", "zwei"):
        os.write(writer, f"{line}\n".encode())
        assert next(chunks) == [line]
    os.write(writer, b"dr")
    threading.Timer(0.05, lambda: (os.write(writer, b"ei\nvier"), os.close(writer))).start()
    assert [line for chunk in chunks for line in chunk] == ["drei", "vier"]


def test_what_is_there_comes_together(pipe):
    reader, writer = pipe
    os.write(writer, b"".join(b"%d\n" % i for i in range(25)))
    os.close(writer)
    chunks = list(available_lines(reader, "stdin", most=10))
    assert [len(chunk) for chunk in chunks] == [10, 10, 5]
    assert [line for chunk in chunks for line in chunk] == [str(i) for i in range(25)]


def test_lines_are_those_of_a_file(tmp_path):
    path = tmp_path / "text"
    for content in (HARD, b"\xef\xbb\xbfx\n", b"", b"\n", b"x"):
        path.write_bytes(content)
        with path.open("rb") as file:
            found = [line for chunk in available_lines(file.fileno(), "stdin") for line in chunk]
        assert found == list(read_lines(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\nb\n\xffc\nd\n", r"stdin, line 3: byte 0xff is not UTF-8"),
        (b"a\nb\n" + b"x" * 5000, r"stdin, line 3 has more than 1,000 bytes"),
    ],
)
def test_a_broken_line_is_named_after_those_before_it(tmp_path, monkeypatch, content, words):
    monkeypatch.setattr(line_stream, "MAX_LINE", 1000)
    path = tmp_path / "text"
    path.write_bytes(content)
    seen = []
    with path.open("rb") as file, pytest.raises(UserError, match=words):
        for chunk in available_lines(file.fileno(), "stdin"):
            seen += chunk
    assert seen == ["a", "b"]
