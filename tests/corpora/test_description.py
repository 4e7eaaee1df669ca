"""Descriptions of corpora: those of the repository, and mistakes, each with its file and line."""

import re
from pathlib import Path

import pytest
from tiny import DESCRIPTION, described

from user_dir.corpora import known_corpora, load_corpus
from user_dir.corpora.description import split_name
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PAPER = ("iwslt17-de-en", "iwslt14-de-en", "kftt-ja-en", "wmt16-ro-en", "wmt14-en-de")


def test_all_descriptions_of_the_repository_are_valid():
    listed = set(re.findall(r"\]\(([\w-]+)\)", (ROOT / "data" / "README.md").read_text(encoding="utf-8")))
    assert {*PAPER, "toy", "multi30k-ape-4k-mt"} <= listed <= {*known_corpora()}
    for name in listed:
        description = load_corpus(name).description
        assert description.licence and description.citation, name
        assert description.files()
        for download in description.downloads.values():
            checksums = download.sha256 or download.sha1 or download.md5
            # Files from unencrypted addresses need a checksum.
            assert all(url.startswith("https://") for url in download.urls) or checksums
    assert load_corpus("multi30k").test_sets == {"test_2016_flickr": "test", "test_2017_flickr": "test1"}
    for name in PAPER:
        description = load_corpus(name).description
        assert {split_name(file)[0] for file in description.files()} == set(description.downloads)
        assert description.vocabulary_size == (10_000 if name == "iwslt14-de-en" else 32_000)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("licence: none", "license: none", r"`license`"),
        ("title: a tiny corpus\n", "", "`title`"),
        ("vocabulary_size: 60", "vocabulary_size: many", r"`\$\.vocabulary_size`"),
        ("[de, en]", "[de, de]", "languages: 'de' is named twice"),
        ("  valid:", "  validation:", "splits: expected train and valid, but"),
        ('["dev.{language}"]', "{held_out: 1}", "splits: valid has held_out 1"),
        (
            "first.{language}",
            "first",
            "splits: big_test is 'first', but must name a file for each of de",
        ),
        ("first.{language}", "{file: 'a.{language}', format: word}", "the formats are lines, columns"),
        ("first.{language}", "{file: a.csv, format: columns}", "columns: {LANGUAGE: NUMBER, …} and format"),
        ("citation: none", "path: elsewhere", "`Path`, got `str` - at `\\$.path`"),
        ("citation: none", "pieces_of: toy", "pieces_of and vocabulary_size exclude each other"),
        ("citation: none", "pretraining: [{src: a}]", r"length >= 2 - at `\$\.pretraining\[0\]`"),
        ("big_test", "a/b", "at `key` in"),
        ("first.{language}", "{file: 'a.{language}', reference: {de: x}}", "must name a file for each of de"),
        (
            "first.{language}",
            "{file: a, format: columns, columns: {de: 1, fr: 2}}",
            "another column for each of de, en",
        ),
        ("first.{language}", "{file: a, format: columns, columns: {de: 2, en: 2}}", "another column"),
        ("citation: none", "clean: {chars: {max: 9}}", r"`chars` - at `\$\.clean`"),
        ("citation: none", "tokenised: true", "tokenised: .* requires a reference"),
        ("citation: none", "a: !!python/object/apply:os.system ['true']", "it is not YAML"),
    ],
)
def test_mistakes(tmp_path, old, new, complaint):
    assert old in DESCRIPTION
    with pytest.raises(UserError, match=complaint) as error:
        described(tmp_path, text=DESCRIPTION.replace(old, new))
    assert str(error.value).count(str(tmp_path / "corpus.yaml")) == 1 and "\n" not in str(error.value)


def test_sources(tmp_path):
    splits = (
        "splits: {train: ['a.tgz/a.{language}', {de: b.sgm, en: c.sgm, lines: 1-9}], valid: {held_out: 5}}"
    )
    description = described(tmp_path, text=f"title: t\nlanguages: [de, en]\n{splits}\n")
    first, second = description.sources("train")
    assert (first.format, first.file) == ("lines", {"de": "a.tgz/a.de", "en": "a.tgz/a.en"})
    assert (second.format, second.file, second.lines) == ("segments", {"de": "b.sgm", "en": "c.sgm"}, "1-9")
    assert description.held_out == {"valid": 5} and description.sources("valid") == []
    assert description.files() == ["a.tgz/a.de", "a.tgz/a.en", "b.sgm", "c.sgm"]
    assert split_name("x/a.tar.gz/b/c") == ("x/a.tar.gz", "b/c") and split_name("a.tgz") == ("a.tgz", None)


def test_paths_of_a_corpus(corpus, data):
    assert corpus.languages == ("de", "en") and corpus.folder == data / "tiny"
    assert list(corpus.test_sets.items()) == [("big_test", "test"), ("odd_test", "test1")]
    assert corpus.text("test1", "en") == corpus.text("odd_test", "en") == data / "tiny" / "text" / "test1.en"
    with pytest.raises(UserError, match="no subset 'test2'; it has train, valid, test, test1"):
        corpus.text("test2", "de")
    with pytest.raises(UserError, match="no language 'fr'; it has de and en"):
        corpus.text("test", "fr")
    with pytest.raises(UserError, match=r"run: python scripts/prepare\.py tiny"):
        corpus.require_prepared()


def test_corpora_are_found_by_name(data, tmp_path):
    assert load_corpus("toy", tmp_path).folder == tmp_path / "toy"  # described in the repository
    assert load_corpus("toy", tmp_path).description == load_corpus("toy").description
    assert {"tiny", "toy"} <= set(known_corpora(data))
    for name in ("tinny", "", "..", "tiny/../tiny"):
        with pytest.raises(UserError, match=r"there is no corpus .*known are .*tiny, toy"):
            load_corpus(name, data)
