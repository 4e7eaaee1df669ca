"""A small file takes little memory, whatever it claims: measured in a process of its own."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from user_dir import bounded
from user_dir.bounded import bounded_lines, unpacking
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
READ = """
import resource, sys
from pathlib import Path
from user_dir.corpora.readers.pairs import read_pairs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
path = Path(sys.argv[1])
try:
    for _ in read_pairs(path, path, ("de", "en"), sys.argv[2]):
        pass
except ValueError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\nbc\n\nd", b"\n\nab\n"])
def test_lines_are_those_of_the_file(content, ends):
    lines = list(io.BytesIO(content))
    found = list(bounded_lines(io.BytesIO(content), "a", ends=ends))
    assert found == (lines if ends else [line.removesuffix(b"\n") for line in lines])


def test_a_long_line_is_refused_with_its_number():
    assert list(bounded_lines(io.BytesIO(b"a\n" + b"b" * 10 + b"\n"), "a", 10)) == [b"a", b"b" * 10]
    for content in (b"a\n" + b"b" * 11, b"a\n" + b"b" * 11 + b"\nc\n"):
        with pytest.raises(UserError, match="name, line 2 has more than 10 bytes"):
            list(bounded_lines(io.BytesIO(content), "name", 10))


@pytest.mark.parametrize("ending", PACK)
def test_how_much_a_file_may_unpack_to(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(bounded, "MIN_EXPANDED", 1 << 20)
    path = tmp_path / f"a{ending}"
    for size, fits in ((1 << 20, True), ((1 << 20) + 1, False)):
        path.write_bytes(PACK[ending](b"\n" * size))
        assert path.stat().st_size * 100 < size
        if fits:
            with unpacking(path) as file:
                assert len(file.read()) == size
        else:
            with (
                pytest.raises(UserError, match=f"a{ending} unpacks to more than 1 MiB"),
                unpacking(path) as file,
            ):
                file.read()


def chunked(path: Path, head: bytes, block: bytes, times: int) -> Path:
    path.write_bytes(gzip.compress(head, 1) + times * gzip.compress(block, 1))
    return path


@pytest.mark.parametrize(
    ("form", "head"),
    [
        ("lines", b"x"),
        ("segments", b'<srcset><seg id="1">'),
        ("tmx", b"<tmx><body><tu><tuv xml:lang='de'><seg>"),
        ("tmx", b"<tmx><body><tu a='"),
        ("tmx", b"<tmx><body><!--"),
        ("tmx", b"<!DOCTYPE tmx ["),
        ("segments", b"<dataset><doc><src lang='de'><seg id='1'>"),
    ],
)
def test_an_endless_line_takes_little_memory(tmp_path, form, head):
    path = chunked(tmp_path / "a.gz", head, b"x" * (1 << 20), 200)
    found = subprocess.run(
        [sys.executable, "-c", READ, str(path), form], cwd=ROOT, capture_output=True, text=True
    )
    assert not found.stderr
    message, used = found.stdout.splitlines()
    assert str(path) in message
    assert int(used) < 100
