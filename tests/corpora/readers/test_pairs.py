import logging

import pytest

from user_dir.corpora.readers.pairs import format_of, read_pairs
from user_dir.errors import UserError

PAIR = ("de", "en")


def files(tmp_path, left: str, right: str, ending: str = ""):
    paths = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    for path, text in zip(paths, (left, right)):
        path.write_bytes(text.encode())
    return paths


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("dev.tgz/dev/newsdev2016-roen-src.ro.sgm", "segments"),
        ("IWSLT17.TED.tst2016.de-en.de.xml", "segments"),
        ("test.sgml.gz", "segments"),
        ("en-ro.tmx.gz", "tmx"),
        ("europarl-v7.de-en.de", "lines"),
        ("train", "lines"),
    ],
)
def test_the_extension_determines_the_format(name, form):
    assert format_of(name) == form


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 1)])
def test_unequal_files_are_both_named_with_their_counts(tmp_path, left, right):
    paths = files(tmp_path, "x\n" * left, "y\n" * right)
    with pytest.raises(UserError, match=rf"a has {left} lines, but .*b has {right}:"):
        list(read_pairs(*paths, PAIR, "lines"))


def test_additional_blank_lines_are_ignored_with_a_warning(tmp_path, caplog):
    paths = files(tmp_path, "x\n\ny\n", "X\n\nY\n\n \r\n")
    with caplog.at_level(logging.WARNING):
        assert list(read_pairs(*paths, PAIR, "lines")) == [("x", "X"), ("", ""), ("y", "Y")]
    assert "b has additional blank lines" in caplog.text


SIDE = '<srcset>\n<doc docid="7">\n{}</doc>\n</srcset>\n'
SEG = '<seg id="{}">{}</seg>\n'


def test_unequal_numbers_of_segments(tmp_path):
    one, two = SEG.format(1, "a"), SEG.format(2, "b")
    paths = files(tmp_path, SIDE.format(one + two), SIDE.format(one), ".sgm")
    with pytest.raises(UserError, match=r"a\.sgm has 2 segments, but .*b\.sgm has 1"):
        list(read_pairs(*paths, PAIR, "segments"))


def test_segments_with_different_ids(tmp_path):
    left = "".join(SEG.format(i, i) for i in (1, 2, 3))
    right = "".join(SEG.format(i, i) for i in (1, 3, 4))
    paths = files(tmp_path, SIDE.format(left), SIDE.format(right), ".xml")
    with pytest.raises(UserError, match=r"segment 2 has the id '2' in .*a\.xml, but '3' in .*b\.xml"):
        list(read_pairs(*paths, PAIR, "segments"))
