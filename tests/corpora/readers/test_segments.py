import os
import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from user_dir.corpora.readers.segments import plain, read_segments
from user_dir.errors import UserError


def read(tmp_path, text: str) -> list[tuple[str, str]]:
    path = tmp_path / "test.sgm"
    path.write_bytes(text.encode())
    return list(read_segments(path))


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ('<seg id="1"> One. </seg>\n<seg id="2">Two.</seg>\n', [("1", "One."), ("2", "Two.")]),
        ('<seg id="1">R&D of AT&T &amp; &quot;Co&quot; &#233;</seg>', [("1", 'R&D of AT&T & "Co" é')]),
        ("<SEG ID=1>One.</SEG>\r\n<seg id='2'></seg>\r\n", [("1", "One."), ("2", "")]),
        ('<p>\n<seg id="1">One</seg><seg id="2">Two</seg>\n</p>', [("1", "One"), ("2", "Two")]),
        ('<seg id="1">\nOver\nlines\n</seg>', [("1", "Over lines")]),
        ('\ufeff<seg id="1">a\u2028b\x85c</seg>\n\n', [("1", "a\u2028b\x85c")]),
        ('<hl><seg id="1">5 < 6</seg></hl>', [("1", "5 < 6")]),
        ("<url>http://x?a=1&seg=2</url>\n", []),
        (
            '<seg id="1"/>\n<seg id=2 /><seg id="3">c</seg><seg/>',
            [("1", ""), ("2", ""), ("3", "c"), ("", "")],
        ),
        ('<seg id="1">a&#10;b&NewLine;c&#13;d&#x1E;e</seg>', [("1", "a b c d e")]),
        ('<seg id="1">R&amp;D<![CDATA[R&D &amp; <x>]]>.</seg>', [("1", "R&DR&D &amp; <x>.")]),
        ('<seg id="1">&#xD83D;&#xDE00; &#150;</seg>', [("1", "😀 –")]),
    ],
)
def test_segments(tmp_path, text, segments):
    assert read(tmp_path, text) == segments


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('\n<seg id="1">One\n<seg id="2">Two</seg>', r"test\.sgm, line 2: the segment '1' is not closed"),
        ('<seg id="1">One', "line 1: the segment '1' is not closed"),
        ("<doc>\nOne</seg>", "line 2: </seg> without <seg>"),
        ('\n<seg id="' + "9" * 5000 + '">One', "line 2: the segment '999"),
        ('\n<seg id="1">One &#' + "9" * 5000 + ";</seg>", "line 2: '&#999"),
        ('\n<seg id="1">' + "One\n" * 300_000 + "</seg>", "line 2: .* 1,048,576"),
    ],
)
def test_unclosed_segments(tmp_path, text, complaint):
    with pytest.raises(UserError, match=complaint):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["R&D", "a & b", "&copyright", "&nosuchentity;", "&;", "&#;"])
def test_ampersands_without_an_entity_are_kept(text):
    assert plain(text, "") == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"))))
def test_escaped_text_is_restored(tmp_path_factory, texts):
    from xml.sax.saxutils import escape

    rows = "".join(f'<seg id="{i}">{escape(text)}</seg>\n' for i, text in enumerate(texts))
    found = read(tmp_path_factory.mktemp("segments"), rows)
    assert found == [(str(i), text.strip()) for i, text in enumerate(texts)]


SHARED = Path(os.environ.get("CORPORA", Path(__file__).resolve().parents[4] / "shared" / "data"))
TESTS = SHARED / "iwslt17" / "2017-01-ted-test" / "texts"


@pytest.mark.parametrize("pair", ["de/en/de-en", "en/de/en-de"])
@pytest.mark.parametrize("year", [2016, 2017])
def test_the_official_iwslt_test_sets(tmp_path, pair, year):
    """Compared with the number of segments in the file and with sacrebleu's reader."""
    archive = TESTS / f"{pair}.tgz"
    if not archive.is_file():
        pytest.skip(f"no copy of the IWSLT 2017 tests in {SHARED}; set CORPORA to a folder with one")
    from sacrebleu.dataset import DATASETS

    name = pair.rsplit("/", 1)[-1]
    member = f"{name}/IWSLT17.TED.tst{year}.{name}.{name[:2]}.xml"
    with tarfile.open(archive) as file:
        content = file.extractfile(member).read()
    path = tmp_path / "test.xml"
    path.write_bytes(content)
    found = [text for _, text in read_segments(path)]
    assert len(found) == len(re.findall(b"<seg id=", content)) == {2016: 1133, 2017: 1138}[year]
    assert "" not in found
    DATASETS["iwslt17"]._convert_format(str(path), str(tmp_path / "theirs"))
    theirs = (tmp_path / "theirs").read_text(encoding="utf-8").split("\n")[:-1]
    assert [" ".join(text.split()) for text in found] == theirs
