from user_dir.corpora.readers.ted_tags import read_ted_tags

FILE = """\
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


def test_metadata_are_removed_and_text_is_kept(tmp_path):
    path = tmp_path / "train.tags.de-en.en"
    path.write_bytes(("\ufeff" + FILE).encode())
    assert list(read_ted_tags(path)) == [
        "A Speaker: A title",
        "TED Talk Subtitles and Transcript: What & why.",
        "A line < 5 & more.",
        "",
        "With a\u2028separator and e\u0301.",
    ]
