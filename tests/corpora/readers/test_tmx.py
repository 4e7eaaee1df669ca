import gzip
from collections import Counter

import pytest

from user_dir.corpora.readers.left_out import EMPTY, SECOND_VARIANT, SUBFLOW, no_language
from user_dir.corpora.readers.pairs import read_pairs
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
FIRST = ("prima", "first")


def read(path, data: bytes, languages=("ro", "en")):
    """Pairs, and what was left out."""
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    left_out = Counter()
    return list(read_pairs(path, path, languages, "tmx", left_out)), dict(left_out)


def read_unit(tmp_path, unit: str, **how):
    """What is read of a unit, after another."""
    data = HEADER + UNIT.format(*reversed(FIRST)) + unit + "\n" + END
    pairs, left_out = read(tmp_path / "en-ro.tmx", data.encode(), **how)
    assert pairs[:1] == [FIRST]
    return pairs[1:], left_out


@pytest.mark.parametrize("name", ["en-ro.tmx", "en-ro.tmx.gz"])
def test_units(tmp_path, name):
    body = UNIT.format("The dog &amp; R&D &#233;.", "Câinele") + UNIT.format("Two.", "Doi &nbsp;\u2028.\r\n ")
    found, left_out = read(tmp_path / name, (HEADER + body + END).encode())
    assert found == [("Câinele", "The dog & R&D é."), ("Doi \xa0\u2028.", "Two.")]
    assert not left_out


@pytest.mark.parametrize(
    ("english", "text"),
    [
        ("<![CDATA[R&D &amp; <b> ]] ]]>x", "R&D &amp; <b> ]] x"),
        ("<![CDATA[a]]><![CDATA[&]]>", "a&"),
        ("a<!-- no & text --> b<?target no text?>.", "a b."),
        ("a\nnew\r\n  line", "a new line"),
        ("a&#10;b&#13;c&NewLine;d", "a b c d"),
        # Characters that XML forbids become spaces, so that they do not glue words.
        ("a\x0bb&#x1E;c&#0;d\x00e&#xFFFF;f", "a b c d e f"),
        ("&#xD83D;&#xDE00;&#55357;&#56832; &#xD83D;.", "😀😀 \ufffd."),
        ("&eacute;&LT;&unknown; &;&#;&#x; &amp;amp;", "é<&unknown; &;&#;&#x; &amp;"),
        ("&#0000000065;&#x00000042;", "AB"),
        ('a <bpt i="1">{b}</bpt>bold<ept i="1">x</ept> <hi>c</hi>!', "a bold c!"),
        ('un<bpt i="1">&lt;b></bpt>believ<ept i="1">&lt;/b></ept>able', "unbelievable"),
        (
            "one<ph>&lt;br/&gt;</ph>two<ph>\\n</ph>three<it type='lb'/>four<ph>{1}</ph>.",
            "one two three four.",
        ),
        ("<hi>a <hi>b</hi></hi><ut>c</ut> d", "a b d"),
        ("  &#32; a  b \t", "a  b"),
    ],
)
def test_text_of_a_segment(tmp_path, english, text):
    assert read_unit(tmp_path, UNIT.format(english, "x")) == ([("x", text)], {})


def test_text_within_codes_is_counted(tmp_path):
    unit = UNIT.format("see<ph>&lt;a title='<sub>a <ph/>tip</sub>'&gt;</ph> this", "x")
    assert read_unit(tmp_path, unit) == ([("x", "see this")], {SUBFLOW: 1})


def unit_of(*variants: tuple[str, str], attribute="xml:lang") -> str:
    texts = "".join(f'<tuv {attribute}="{tag}"><seg>{text}</seg></tuv>' for tag, text in variants)
    return f"<tu><note>n</note>{texts}</tu>"


@pytest.mark.parametrize(
    ("languages", "variants", "pair", "reason"),
    [
        (("ro", "en"), [("RO_ro", "a"), ("EN-US", "b")], ("a", "b"), None),
        (("ro", "en"), [("fr", "x"), ("ron", "a"), ("eng", "b")], ("a", "b"), None),
        (("ro", "en"), [("ro", "a")], None, no_language("en")),
        (("ro", "en"), [("", "a"), ("en", "b")], None, no_language("ro")),
        (("ro", "en"), [("ro", "a"), ("en", "")], None, EMPTY),
        (("ro", "en"), [("ro", "a"), ("en", "<ph/> ")], None, EMPTY),
        (("ro", "en"), [("ro", "a"), ("ro", "c"), ("en", "b")], ("a", "b"), SECOND_VARIANT),
        (("ro", "en"), [("ro-MD", "c"), ("ro", "a"), ("en", "b")], ("a", "b"), SECOND_VARIANT),
        (("pt_BR", "en"), [("pt-PT", "x"), ("pt-BR", "a"), ("en", "b")], ("a", "b"), None),
        (("pt_BR", "en"), [("pt-PT", "x"), ("en", "b")], None, no_language("pt_BR")),
        (("pt_BR", "en"), [("pt", "a"), ("en", "b")], ("a", "b"), None),
        (("pt", "pt_BR"), [("pt-BR", "b"), ("pt-PT", "a")], ("a", "b"), None),
        (("zh_TW", "en"), [("zh-Hans", "x"), ("zh-Hant", "a"), ("en", "b")], ("a", "b"), None),
    ],
)
def test_languages(tmp_path, languages, variants, pair, reason):
    path = tmp_path / "a.tmx"
    whole = unit_of(*zip(languages, ("1", "2")))
    for attribute in ("xml:lang", "lang"):
        body = whole + unit_of(*variants, attribute=attribute)
        pairs, left_out = read(path, (HEADER + body + END).encode(), languages)
        assert pairs == [("1", "2"), *([pair] if pair else [])]
        assert left_out == ({reason: 1} if reason else {})


@pytest.mark.parametrize(
    ("root", "prefix"),
    [
        ('<tmx xmlns="http://www.lisa.org/tmx14" version="1.4">', ""),
        ('<t:tmx xmlns:t="http://www.lisa.org/tmx14" version="1.4">', "t:"),
        ('<TMX version="1.1">', ""),
    ],
)
def test_namespaces(tmp_path, root, prefix):
    units = UNIT.format("a", "b").replace("<", f"<{prefix}").replace(f"<{prefix}/", f"</{prefix}")
    text = f"{root}<{prefix}body>{units}</{prefix}body></{root[1:].split()[0]}>"
    assert read(tmp_path / "a.tmx", text.encode())[0] == [("b", "a")]


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8", None),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "UTF-16"),
        ("utf-16-be", None),
        ("utf-32", None),
        ("utf-8", "UTF-16"),  # as some tools write
        ("latin-1", "ISO-8859-1"),
        ("cp1250", "windows-1250"),
        ("utf-8", "UTF8"),
    ],
)
def test_encodings(tmp_path, encoding, declared):
    declaration = f'<?xml version="1.0" encoding="{declared}"?>' if declared else '<?xml version="1.0"?>'
    text = (
        HEADER.replace('<?xml version="1.0" encoding="UTF-8"?>', declaration) + UNIT.format("ä\n", "é") + END
    )
    assert read(tmp_path / "a.tmx", text.encode(encoding))[0] == [("é", "ä")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEADER + "<tu><tuv>\n</tu>" + END, r"a\.tmx, line 7"),
        (HEADER + UNIT.format("a <b", "c") + END, r"a\.tmx, line 7"),
        (HEADER + UNIT.format("a", "c"), r"a\.tmx, line 10"),
        (HEADER + UNIT.format("a<!--\n\n--><b", "c") + END, r"a\.tmx, line 9"),
        (HEADER + UNIT.format("a<!--\n", "c") + END, r"a\.tmx, line 7: <!-- is not closed"),
        (HEADER + UNIT.format("a<![CDATA[\n", "c") + END, r"a\.tmx, line 7: <!\[CDATA\[ is not closed"),
        (HEADER + UNIT.format("\n&#1114112;", "c") + END, r"a\.tmx, line 8: '&#1114112;'"),
        (HEADER + UNIT.format("\n\n&#x" + "F" * 5000 + ";", "c") + END, r"a\.tmx, line 9: '&#xFFF"),
        (HEADER.replace("UTF-8", "zlib_codec") + END, r"a\.tmx: the encoding 'zlib_codec' is unknown"),
        (HEADER.replace('"tmx14.dtd"', '"a" [<!ENTITY a "b">]') + END, r"a\.tmx, line 2: .*entities"),
        ("<!DOCTYPE tmx [\n\n" + "x" * 70_000, r"a\.tmx, line 1: <!DOCTYPE is not closed"),
        ("", r"a\.tmx, line \d"),
        ("no xml", r"a\.tmx, line 1"),
        (HEADER + END, r"a\.tmx has no translation unit .* none"),
        (HEADER + unit_of(("fr", "a"), ("en", "b")) + END, r"a\.tmx has no .* among 1; .*'fr', 'en'"),
        (HEADER + "<tu>" * 300 + "</tu>" * 300 + END, r"a\.tmx has more than \d+ elements"),
        (HEADER + UNIT.format("\n&#" + "1" * 200_000 + ";", "c") + END, r"a\.tmx, line 8"),
        (HEADER + UNIT.format("\n&" + "a" * 200_000, "c") + END, r"a\.tmx, line 8"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_line(tmp_path, text, complaint):
    with pytest.raises(UserError, match=complaint):
        read(tmp_path / "a.tmx", text.encode())


def test_bytes_of_another_encoding(tmp_path):
    with pytest.raises(UserError, match=r"a\.tmx, line 9: byte 0xe4 is not UTF-8"):
        read(tmp_path / "a.tmx", (HEADER + UNIT.format("ü\n", "sä")).encode().replace(b"s\xc3\xa4", b"s\xe4"))


def test_a_document_type_with_declarations_other_than_entities(tmp_path):
    kind = '<!DOCTYPE tmx PUBLIC "-//LISA//[DTD]>//EN" "tmx14.dtd" [\n<!ELEMENT tmx ANY>\n] >'
    text = HEADER.replace('<!DOCTYPE tmx SYSTEM "tmx14.dtd">', kind) + UNIT.format("a", "b") + END
    assert read(tmp_path / "a.tmx", text.encode())[0] == [("b", "a")]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_where_a_file_is_cut_into_blocks_does_not_matter(tmp_path, monkeypatch, block):
    english = "R&D &amp;<![CDATA[<&]]]]> &#233;<!-- - -- -->&#xD83D;&#xDE00; & x &eacute;&co"
    data = (HEADER + UNIT.format(english, "x") + END).encode()
    expected = [("x", "R&D &<&]] é😀 & x é&co")]
    assert read(tmp_path / "a.tmx", data)[0] == expected
    monkeypatch.setattr("user_dir.corpora.readers.xml_text.BLOCK", block)
    assert read(tmp_path / "a.tmx", data)[0] == expected


@pytest.mark.parametrize(
    "endless", [b"<tu>" * (1 << 18), b"<tu>&#" + b"1" * (1 << 20), b"<tu>&" + b"a" * (1 << 20)]
)
def test_endless_markup_ends_early(tmp_path, endless):
    """The parser keeps elements within each other; references wait for their end."""
    import tracemalloc

    path = tmp_path / "a.tmx"
    path.write_bytes(HEADER.encode() + endless)
    tracemalloc.start()
    with pytest.raises(UserError, match=r"a\.tmx"):
        list(read_pairs(path, path, ("ro", "en"), "tmx"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_more_languages_than_there_are_end_early(tmp_path):
    variants = "".join(f'<tuv xml:lang="de-x-{i}"><seg>a</seg></tuv>' for i in range(5000))
    with pytest.raises(UserError, match="'de-x-1000'"):
        read(tmp_path / "a.tmx", f"{HEADER}<tu>{variants}</tu>{END}".encode())


def test_memory_does_not_grow_with_the_file(tmp_path):
    import tracemalloc

    path = tmp_path / "big.tmx"
    path.write_text(HEADER + UNIT.format("a" * 500, "b" * 500).replace("\n", "") * 5000 + END)
    tracemalloc.start()
    assert sum(1 for _ in read_pairs(path, path, ("ro", "en"), "tmx")) == 5000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * path.stat().st_size
