"""Each format, by examples of its peculiarities; any bytes are one sentence a line, or an error."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from user_dir.corpora.own_pairs import describe_pairs
from user_dir.corpora.readers import FORMATS, ONE_FILE, Source, ending_of, read_lines, read_pairs
from user_dir.corpora.readers.segments import read_segments
from user_dir.errors import UserError

PAIR = ("de", "en")


def written(path, content):
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def pairs_of(form, *paths, languages=PAIR, **settings):
    return list(read_pairs(list(paths), languages, Source({}, form, **settings)))


@pytest.mark.parametrize("name", ["file", "file.gz"])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\n\n", ["", ""]),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf"]),
        (b"a\rb\n", ["a b"]),
        ("\ufeffa\nb\n".encode(), ["a", "b"]),
    ],
)
def test_lines_end_at_newlines_only(tmp_path, name, data, lines):
    assert list(read_lines(written(tmp_path / name, data))) == lines


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"))))
def test_any_lines_are_read_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "file"
    assert list(read_lines(written(path, "".join(line + "\n" for line in lines)))) == lines


EXAMPLES = {
    "lines": "Ein Satz.\nNoch einer.\n",
    "ted_tags": "<url>http://a</url>\n<title>Titel</title>\nEin Satz.\n",
    "segments": '<doc>\n<seg id="1">Ein Satz &amp; mehr</seg>\n<seg id="2">Zwei\nZeilen</seg>\n</doc>\n',
    "tmx": '<tmx><body><tu><tuv xml:lang="de"><seg>Ein <b>Satz</b></seg></tuv><tuv xml:lang="en"><seg>A'
    "</seg></tuv></tu></body></tmx>\n",
    "columns": "Ein Satz.\tA sentence.\nNoch einer.\tAnother one.\n",
    "triplets": "Ein Satz.\nNoch einer.\n",
}


@pytest.mark.parametrize("form", EXAMPLES)
@settings(max_examples=10)
@given(changes=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3))))
def test_any_bytes_are_sentences_or_an_error_with_the_file(tmp_path_factory, form, changes):
    content = bytearray(EXAMPLES[form].encode())
    for place, piece in changes:
        content[place : place + 1] = piece
    path = written(tmp_path_factory.mktemp("any") / "text", bytes(content))
    settings = {"columns": {"de": 1, "en": 2}} if form == "columns" else {}
    try:
        pairs = pairs_of(
            form, *[path] * (1 if form in ONE_FILE else 3 if form == "triplets" else 2), **settings
        )
    except UserError as error:
        assert changes and str(path) in str(error)
    else:
        assert not any("\n" in side or "\r" in side for pair in pairs for side in pair)
        assert pairs or changes
    assert FORMATS.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b"text\n" * 1000, mtime=0)[:-20]])
def test_a_damaged_gzip_file(tmp_path, data):
    (tmp_path / "file.gz").write_bytes(data)
    with pytest.raises(UserError, match=r"cannot read .*file\.gz"):
        list(read_lines(tmp_path / "file.gz"))


def test_damage_within_a_compressed_memory_and_a_unit_without_text(tmp_path):
    units = tmx(*({"de": f"Satz {i * 7919 % 10007}", "en": f"{i}"} for i in range(3000)))
    whole = gzip.compress(units.encode())
    half = len(whole) // 2
    path = written(tmp_path / "a.tmx", "")
    for damaged in (whole[:half] + b"\xff" * 40 + whole[half + 40 :], whole[:half]):
        (tmp_path / "a.tmx.gz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"cannot read .*a\.tmx\.gz"):
            pairs_of("tmx", tmp_path / "a.tmx.gz")
    for text in ('<tmx><body><tu><tuv lang="de"/></tu></body></tmx>', "<tmx><tu/></tmx>"):
        assert pairs_of("tmx", written(path, text)) == []


def test_sides_of_unequal_length(tmp_path):
    left = written(tmp_path / "a.de", "a\nb\n\n \n")
    assert pairs_of("lines", left, written(tmp_path / "a.en", "c\nd\n")) == [("a", "c"), ("b", "d")]
    with pytest.raises(UserError, match=r"not parallel: .*a\.de has 4 sentences, the other has more"):
        pairs_of("lines", left, written(tmp_path / "b.en", "c\nd\n\n\n\ne\n"))


def test_pairs_in_one_file_of_one_side(tmp_path):
    segments = written(tmp_path / "a.sgm", "<seg>ein Satz</seg>\n" * 40)
    with pytest.raises(UserError, match=r"a\.sgm, line 1: it has 1 columns only"):
        describe_pairs([segments], PAIR, "a", tmp_path)


def test_some_lines_of_a_file(tmp_path):
    path = written(tmp_path / "a", "1\n2\n3\n4\n")
    assert pairs_of("lines", path, path, lines="2-3") == [("2", "2"), ("3", "3")]
    for lines in ("4-5", "3-2"):
        with pytest.raises(UserError, match=f"has no lines {lines}"):
            pairs_of("lines", path, path, lines=lines)


def test_metadata_of_talks_are_removed_and_text_is_kept(tmp_path):
    text = """\
<doc docid="1" genre="lectures">\r
<url>http://www.ted.com/talks/one</url>
<keywords>talks, R&D</keywords>
<speaker>A Speaker</speaker>
<talkid>1</talkid>
<title>A Speaker: A title </title>
<description>TED Talk Subtitles and Transcript: What & why.</description>
<reviewer href="http://x">A Reviewer</reviewer>
<translator href="http://x">A Translator</translator>
 A line < 5 & more.\r

With a\u2028separator and e\u0301.
</doc>
"""
    path = written(tmp_path / "train.tags.de-en.en", "\ufeff" + text)
    assert [left for left, _ in pairs_of("ted_tags", path, path)] == [
        "A Speaker: A title",
        "TED Talk Subtitles and Transcript: What & why.",
        "A line < 5 & more.",
        "",
        "With a\u2028separator and e\u0301.",
    ]


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ('<seg id="1"> One. </seg>\n<seg id="2">Two.</seg>\n', ["One.", "Two."]),
        ('<seg id="1">R&D of AT&T &amp; &quot;Co&quot; &#233;</seg>', ['R&D of AT&T & "Co" é']),
        ("<SEG ID=1>One.</SEG>\r\n<seg id='2'></seg>\r\n", ["One.", ""]),
        ('<p>\n<seg id="1">One</seg><seg id="2">Two</seg>\n</p>', ["One", "Two"]),
        ('<seg id="1">\nOver\nlines\n</seg>', ["Over lines"]),
        ('\ufeff<seg id="1">a\u2028b\x85c</seg>\n\n', ["a\u2028b\x85c"]),
        ('<hl><seg id="1">5 < 6</seg></hl>', ["5 < 6"]),
        ('<seg id="1"/>\n<seg id=2 /><seg id="3">c</seg><seg/>', ["", "", "c", ""]),
        ('<seg id="1">a&#10;b&NewLine;c&#13;d&#x1E;e</seg>', ["a b c d e"]),
    ],
)
def test_segments(tmp_path, text, segments):
    assert list(read_segments(written(tmp_path / "test.sgm", text))) == segments


def test_tables_of_tabs_have_no_quotation_marks(tmp_path):
    rows = [["Go.", "Geh.", 'CC "BY'], ['"No', " Er sagte „nein“ ", "Nein\u2028doch"]]
    text = "\ufeff" + "\r\n".join("\t".join(row) for row in rows) + "\r\n\n"
    for columns in ({"de": 2, "en": 1}, {"de": 3, "en": 1}):
        pairs = pairs_of("columns", written(tmp_path / "deu.txt.gz", text), columns=columns)
        assert pairs == [tuple(row[columns[side] - 1].strip() for side in PAIR) for row in rows]


@pytest.mark.parametrize(
    ("text", "separator", "complaint"),
    [
        ("a,b\nHallo, Welt,c\n", ",", "line 2: it has 3 columns, but the first row has 2"),
        ('a, "b, c"\nd,e\n', ",", "line 2: it has 2 columns, but the first row has 3"),
        ('a\tb\n"c\td"\te\n', "\t", "line 2: it has 3 columns"),
        ('"a\nb"\tc\n', "\t", "line 1: it has 1 columns only"),
        ('a;b\n"c\nd";"e\nf;g\n', ";", "line 2: unexpected end of data"),
    ],
)
def test_a_table_whose_rows_differ_is_refused(tmp_path, text, separator, complaint):
    with pytest.raises(UserError, match=complaint):
        pairs_of("columns", written(tmp_path / "a", text), columns={"de": 1, "en": 2}, separator=separator)


def test_tables_of_commas_have_them(tmp_path):
    text = 'a,"b, ""c"""\n"over\ntwo lines",d\n'
    pairs = pairs_of("columns", written(tmp_path / "a.csv", text), columns={"de": 1, "en": 2}, separator=",")
    assert pairs == [("a", 'b, "c"'), ("over two lines", "d")]


def tmx(*units: dict[str, str], attribute="xml:lang", namespace="") -> str:
    texts = "".join(
        "<tu><note>n</note>"
        + "".join(f'<tuv {attribute}="{tag}"><seg>{text}</seg></tuv>' for tag, text in unit.items())
        + "</tu>\n"
        for unit in units
    )
    start = '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    return f"{start}<tmx{namespace}><header/><body>{texts}</body></tmx>"


@pytest.mark.parametrize("name", ["talks.sl", "talks.sl.gz", "talks.de.sl.xz"])
def test_the_ending_of_a_compressed_file_is_that_of_its_content(name):
    assert ending_of(name) == "sl"


@pytest.mark.parametrize("name", ["a.tmx", "a.tmx.gz"])
@pytest.mark.parametrize(("attribute", "namespace"), [("xml:lang", ""), ("lang", ' xmlns="http://a"')])
def test_translation_memories(tmp_path, name, attribute, namespace):
    units = [
        {"en": "The dog &amp; R&amp;D &#233;.", "de-AT": "Der\n Hund"},
        {"fr": "x", "eng": 'a <bpt i="1">{b}</bpt>bold<ept i="1">x</ept> <hi>c</hi>!', "deu": "b<ph/>c"},
        {"en": "only English"},
        {"en": "x", "de": " "},
    ]
    text = tmx(*units, attribute=attribute, namespace=namespace)
    pairs = pairs_of("tmx", written(tmp_path / name, text))
    assert pairs == [("Der Hund", "The dog & R&D é."), ("bc", "a bold c!")]
