import gzip

import pytest

from user_dir.corpora.readers import read_pairs
from user_dir.errors import UserError

HEADER = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationdate="Thu Jan 1" srclang="en" datatype="PlainText" segtype="sentence" />
  <body>
"""
UNIT = """\
    <tu>
      <tuv xml:lang="en"><seg>{}</seg></tuv>
      <tuv xml:lang="ro"><seg>{}</seg></tuv>
    </tu>
"""
END = "  </body>\n</tmx>\n"


def read(tmp_path, body: str, name="en-ro.tmx", end=END) -> list[tuple[str, str]]:
    data = (HEADER + body + end).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    path = tmp_path / name
    return list(read_pairs(path, path, ("ro", "en"), "tmx"))


@pytest.mark.parametrize("name", ["en-ro.tmx", "en-ro.tmx.gz"])
def test_units(tmp_path, name):
    body = UNIT.format("The dog &amp; R&D &#233;.", "Câinele") + UNIT.format("Two.", "Doi &nbsp;\u2028.\r\n ")
    found = read(tmp_path, body, name)
    assert found == [("Câinele", "The dog & R&D é."), ("Doi \xa0\u2028.", "Two.")]


@pytest.mark.parametrize(
    ("unit", "pair"),
    [
        ('<tu><tuv lang="EN-US"><seg>a</seg></tuv><tuv xml:lang="ro_RO"><seg>b</seg></tuv></tu>', ("b", "a")),
        ('<tu><tuv xml:lang="ro"><seg>b</seg></tuv></tu>', ("b", "")),
        ('<tu><tuv xml:lang="en"><seg>a\nnew\r\n  line</seg></tuv></tu>', ("", "a new line")),
        (
            '<tu><note>n</note><tuv xml:lang="en"><seg>a <bpt i="1">{b}</bpt>bold<ept>x</ept> <hi>c</hi>'
            '!</seg></tuv><tuv xml:lang="ro"><seg/></tuv></tu>',
            ("", "a bold c!"),
        ),
        (
            '<tu><tuv xml:lang="en"><seg>a\x0bb</seg></tuv><tuv xml:lang="ro"><seg>c</seg></tuv></tu>',
            ("c", "ab"),
        ),
    ],
)
def test_kinds_of_units(tmp_path, unit, pair):
    assert read(tmp_path, unit + "\n") == [pair]


@pytest.mark.parametrize("body", ["<tu><tuv>\n</tu>", UNIT.format("a <b", "c")])
def test_invalid_tmx_is_refused_with_the_line(tmp_path, body):
    with pytest.raises(UserError, match=r"en-ro\.tmx, line \d+: not TMX"):
        read(tmp_path, body)


def test_a_truncated_file(tmp_path):
    with pytest.raises(UserError, match=r"en-ro\.tmx, line \d+: not TMX"):
        read(tmp_path, UNIT.format("a", "b"), end="")


def test_memory_does_not_grow_with_the_file(tmp_path):
    import tracemalloc

    path = tmp_path / "big.tmx"
    path.write_text(HEADER + UNIT.format("a" * 500, "b" * 500) * 5000 + END)
    tracemalloc.start()
    assert sum(1 for _ in read_pairs(path, path, ("ro", "en"), "tmx")) == 5000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * path.stat().st_size
