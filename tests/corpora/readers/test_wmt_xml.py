"""WMT's XML of 2021 and later, against sacrebleu's reader and by what has to be in the pairs."""

from collections import Counter

import pytest
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from user_dir.corpora.readers.left_out import (
    NO_REFERENCE,
    NO_SOURCE,
    OTHER_REFERENCE,
    SYSTEM,
    TEST_SUITE,
)
from user_dir.corpora.readers.pairs import read_pairs
from user_dir.errors import UserError

PAIR = ("en", "de")


def side(kind: str, lang: str, who: str, texts: dict) -> str:
    label = {"src": "", "ref": f' translator="{who}"', "hyp": f' system="{who}"'}[kind]
    segments = "\n".join(f'<seg id="{number}">{text}</seg>' for number, text in texts.items())
    return f'<{kind} lang="{lang}"{label}><p>\n{segments}\n</p></{kind}>\n'


def document(name: str, *sides: str, more: str = "") -> str:
    return f'<doc id="{name}" origlang="en"{more}>\n{"".join(sides)}</doc>\n'


def dataset(*documents: str, root: str = 'dataset id="newstest2021.en-de"') -> str:
    return f"<?xml version='1.0' encoding='utf-8'?>\n<{root}>\n{''.join(documents)}</{root.split()[0]}>\n"


SOURCE = side("src", "en", "", {1: "One &amp; two.", 2: "Three\n lines."})
A = side("ref", "de", "A", {1: "Eins &amp; zwei.", 2: "Drei."})
B = side("ref", "de", "B", {1: "1 &amp; 2.", 2: "3."})
HYPOTHESES = side("hyp", "de", "Online-A", {1: "x", 2: "y"})
FIRST = document("a", SOURCE, A, B, HYPOTHESES)
SECOND = document("b", side("src", "en", "", {1: "Four."}), side("ref", "de", "B", {1: "4."}))
PAIRS = [("One & two.", "Eins & zwei."), ("Three lines.", "Drei."), ("Four.", "4.")]


def read(tmp_path, text: str, languages=PAIR, translator=None):
    path = tmp_path / "newstest2021.en-de.xml"
    path.write_text(text, encoding="utf-8")
    left_out = Counter()
    return list(read_pairs(path, path, languages, "segments", left_out, translator)), dict(left_out)


def test_the_first_reference_is_read_and_the_rest_is_counted(tmp_path):
    pairs, left_out = read(tmp_path, dataset(FIRST, SECOND))
    assert pairs == PAIRS
    assert left_out == {SYSTEM: 2, OTHER_REFERENCE: 2}


def test_a_translator_can_be_chosen(tmp_path):
    pairs, left_out = read(tmp_path, dataset(FIRST, SECOND), translator="B")
    assert pairs == [("One & two.", "1 & 2."), ("Three lines.", "3."), ("Four.", "4.")]
    pairs, left_out = read(tmp_path, dataset(FIRST, SECOND), translator="A")
    assert pairs == PAIRS[:2]
    assert left_out[NO_REFERENCE] == 1


@pytest.mark.parametrize("languages", [("de", "en"), ("DE", "en_US"), ("deu", "eng_Latn")])
def test_either_direction_and_any_code(tmp_path, languages):
    turned = languages[0].lower().startswith("de")
    pairs, _ = read(tmp_path, dataset(FIRST, SECOND), languages)
    assert pairs == ([pair[::-1] for pair in PAIRS] if turned else PAIRS)


def test_it_agrees_with_sacrebleu(tmp_path):
    """Also on documents of test suites, segments without a reference, and several collections."""
    odd = document(
        "c", side("src", "en", "", {1: "x", 2: "y", 3: "z"}), side("ref", "de", "B", {1: "X", 3: ""})
    )
    suite = document("d", SOURCE, A, more=' testsuite="t"')
    text = dataset(FIRST, odd, suite, SECOND)
    pairs, left_out = read(tmp_path, text, translator="B")
    path = tmp_path / "newstest2021.en-de.xml"
    theirs = WMTXMLDataset._unwrap_wmt21_or_later(str(path))
    clean = WMTXMLDataset._clean
    assert pairs == [(clean(a), clean(b)) for a, b in zip(theirs["src"], theirs["ref:B"])]
    assert len(pairs) == 4
    assert left_out == {SYSTEM: 2, TEST_SUITE: 4, NO_REFERENCE: 2}
    nested = dataset(dataset(FIRST, odd, suite, root='collection id="x"').partition("\n")[2], SECOND)
    assert read(tmp_path, nested, translator="B")[0] == pairs


def test_segments_without_a_counterpart_are_counted(tmp_path):
    text = document("a", SOURCE, side("ref", "de", "A", {2: "Drei.", 7: "x", 8: "y"}))
    assert read(tmp_path, dataset(text)) == ([PAIRS[1]], {NO_REFERENCE: 1, NO_SOURCE: 2})


def test_two_files(tmp_path):
    paths = [tmp_path / name for name in ("src.xml", "ref.xml", "ref.sgm")]
    paths[0].write_text(dataset(document("a", SOURCE), document("b", side("src", "en", "", {1: "Four."}))))
    paths[1].write_text(dataset(document("a", A), document("b", side("ref", "de", "B", {1: "4."}))))
    paths[2].write_text('<refset><seg id="1">R&D</seg><seg id="2">b</seg><seg id=1>c</seg></refset>')
    assert list(read_pairs(paths[0], paths[1], PAIR, "segments")) == PAIRS
    found = list(read_pairs(paths[0], paths[2], PAIR, "segments"))
    assert found == [(pair[0], text) for pair, text in zip(PAIRS, ("R&D", "b", "c"))]


@pytest.mark.parametrize(
    ("text", "languages", "complaint"),
    [
        (
            dataset(FIRST),
            ("en", "fr"),
            r"en-de\.xml has no segment in en and fr .*src in 'en'.*ref in 'de' by 'A'",
        ),
        (dataset(document("a", SOURCE)), PAIR, r"en-de\.xml has no segment"),
        (dataset(), PAIR, r"en-de\.xml has no segment .* no text"),
        (
            dataset(document("a", side("src", "en", "", {1: "x"}) * 1, A.replace('"2"', '"1"'))),
            PAIR,
            "'1' twice",
        ),
        (dataset(FIRST).replace("</doc>", ""), PAIR, r"en-de\.xml, line \d+"),
        ('<srcset><seg id="1">x</seg></srcset>', PAIR, "name a file for each language"),
        ("", PAIR, "name a file for each language"),
    ],
)
def test_what_cannot_be_read(tmp_path, text, languages, complaint):
    with pytest.raises(UserError, match=complaint):
        read(tmp_path, text, languages)


def test_an_unknown_translator(tmp_path):
    with pytest.raises(UserError, match=r"reference by 'C'; it has .*'A'.*'B'"):
        read(tmp_path, dataset(FIRST), translator="C")


def test_memory_is_bounded_by_document(tmp_path, monkeypatch):
    monkeypatch.setattr("user_dir.corpora.readers.wmt_xml.MAX_DOCUMENT", 1000)
    with pytest.raises(UserError, match="1,000 characters"):
        read(tmp_path, dataset(document("a", side("src", "en", "", dict.fromkeys(range(20), "x" * 50)))))
    many = [document(str(i), SOURCE, A) for i in range(20)]
    assert len(read(tmp_path, dataset(*many))[0]) == 40
