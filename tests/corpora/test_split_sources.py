import pytest
from tiny import described

from user_dir.corpora.split_sources import Source, file_names, held_out, sources_of
from user_dir.errors import UserError

NAMES = {"de": "t.de", "en": "t.en"}


def splits(tmp_path, train="t.{language}", valid="v.{language}"):
    return described(
        tmp_path, text=f"title: x\nlanguages: [de, en]\nsplits:\n  train: {train}\n  valid: {valid}\n"
    )


@pytest.mark.parametrize(
    ("train", "sources"),
    [
        ("t.{language}", [Source(NAMES, "lines")]),
        ("{de: a.sgm, en: b.sgm}", [Source({"de": "a.sgm", "en": "b.sgm"}, "segments")]),
        ("{file: 't.{language}', format: ted_tags}", [Source(NAMES, "ted_tags")]),
        ("a.tmx", [Source({"de": "a.tmx", "en": "a.tmx"}, "tmx")]),
        (
            "['t.{language}', a.tmx.gz]",
            [Source(NAMES, "lines"), Source(dict.fromkeys(NAMES, "a.tmx.gz"), "tmx")],
        ),
    ],
)
def test_sources_of_a_split(tmp_path, train, sources):
    assert sources_of(splits(tmp_path, train), "train") == sources


def test_held_out_and_references(tmp_path):
    found = splits(tmp_path, valid="{held_out: 23}")
    assert held_out(found) == 23 and sources_of(found, "valid") == []
    found = splits(tmp_path, valid="{file: 't.{language}', reference: 'o.{language}'}")
    assert held_out(found) is None
    assert sources_of(found, "valid") == [Source(NAMES, "lines", {"de": "o.de", "en": "o.en"})]
    assert file_names(found)[:4] == ["t.de", "t.en", "o.de", "o.en"]


@pytest.mark.parametrize(
    ("train", "complaint"),
    [
        ("t", "train is 't', but must have {language} in it"),
        ("3", "train is 3, but must be a file name with {language} in it"),
        ("[]", "train is empty"),
        ("{de: a}", "but must be a file name with {language} in it, or a name for each language"),
        ("{de: a, en: b, fr: c}", "unknown key 'fr'"),
        ("{file: 't.{language}', form: tmx}", "unknown key 'form'"),
        (
            "{file: 't.{language}', format: csv}",
            "format is 'csv', but must be one of columns, lines",
        ),
        ("{file: 't.{language}', reference: 'o.{language}'}", "not for train"),
        ("'{language}.tmx'", "single file"),
        ("{held_out: 23}", "only valid can be held_out"),
    ],
)
def test_invalid_sources(tmp_path, train, complaint):
    with pytest.raises(UserError) as caught:
        sources_of(splits(tmp_path, train), "train")
    assert complaint in str(caught.value) and "line 3: splits" in str(caught.value)


def test_a_correction_may_stand_for_the_translation_but_not_for_the_source(tmp_path):
    valid = "v.{side}\norigin: triplets"
    found = splits(tmp_path, "{src: a.src, mt: a.pe, pe: a.pe}", valid)
    (source,) = sources_of(found, "train")
    assert source.names == {"src": "a.src", "mt": "a.pe", "pe": "a.pe"}
    found = splits(tmp_path, "{src: a, mt: a, pe: a}", valid)
    with pytest.raises(UserError, match=r"must have \{side\} in it"):
        sources_of(found, "train")


@pytest.mark.parametrize("every", ["1", "0", "x", "true"])
def test_bad_held_out(tmp_path, every):
    with pytest.raises(UserError, match="only valid can be held_out, with a number of at least 2"):
        sources_of(splits(tmp_path, valid=f"{{held_out: {every}}}"), "valid")
