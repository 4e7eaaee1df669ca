import re
from pathlib import Path

import pytest
from tiny import DESCRIPTION

from user_dir.corpora.description import RESERVED, read_description
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PAPER = ("iwslt17-de-en", "iwslt14-de-en", "kftt-ja-en", "wmt16-ro-en", "wmt14-en-de")


def described(tmp_path, text):
    path = tmp_path / "corpus.yaml"
    path.write_text(text, encoding="utf-8")
    return read_description(path)


def test_a_good_description(tmp_path):
    found = described(tmp_path, DESCRIPTION)
    assert found.languages == ("de", "en")
    assert found.test_sets == {"big_test": "test", "odd_test": "test1"}
    assert found.character_coverage == 1.0
    assert found.downloads == {}


@pytest.mark.parametrize("code", ["es_419", "zh_Hant_TW", "de_1996", "pt_BR", "jpn_Jpan"])
def test_codes_of_languages(tmp_path, code):
    assert described(tmp_path, DESCRIPTION.replace("[de, en]", f"[{code}, en]")).languages == (code, "en")


def test_all_descriptions_of_the_repository_are_valid():
    from user_dir.corpora import known_corpora, load_corpus

    assert set(PAPER) | {"toy", "multi30k", "tanaka"} <= set(known_corpora())
    listed = set(re.findall(r"\]\(([\w-]+)\)", (ROOT / "data" / "README.md").read_text(encoding="utf-8")))
    assert {*PAPER, "toy", "multi30k-ape-4k-mt"} <= listed <= {*known_corpora()}
    for name in known_corpora():  # also those of one's own, which need not be listed or have a licence
        corpus = load_corpus(name)
        assert name not in listed or (corpus.description.licence and corpus.description.citation), name
        for download in corpus.description.downloads.values():
            # Files from unencrypted addresses need a checksum.
            assert all(url.startswith("https://") for url in download.urls) or download.checksums
    assert load_corpus("multi30k").test_sets == {"test_2016_flickr": "test", "test_2017_flickr": "test1"}


def test_all_raw_files_of_the_corpora_have_a_url():
    from user_dir.corpora import load_corpus
    from user_dir.corpora.archives import split_name
    from user_dir.corpora.split_sources import file_names

    for name in PAPER:
        description = load_corpus(name).description
        assert {split_name(each)[0] for each in file_names(description)} == set(description.downloads)
        assert description.vocabulary_size == (10_000 if name == "iwslt14-de-en" else 32_000)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("licence: none", "license: none", r"line 9: unknown key 'license'; choose from title, languages"),
        ("title: a tiny corpus\n", "", "the key title is missing"),
        (
            "vocabulary_size: 60",
            "vocabulary_size: many",
            "line 8: vocabulary_size is 'many', but must be a wh",
        ),
        ("vocabulary_size: 60", "vocabulary_size: true", "line 8: vocabulary_size is True"),
        ("vocabulary_size: 60", "vocabulary_size: 0", "line 8: vocabulary_size is 0"),
        ("vocabulary_size: 60", "vocabulary_size: 2147483648", "line 8: .* from 1 to 2,147,483,647"),
        ("vocabulary_size: 60", f"vocabulary_size: {'9' * 30}", "line 8: a number has 100 bits"),
        ("vocabulary_size: 60", f"vocabulary_size: 0x{'f' * 5000}", "a number has 20000 bits"),
        ("[de, en]", "[de]", "line 2: languages is"),
        ("[de, en]", "[de, no]", r"line 2: languages\[1\] is False, .* quote"),  # YAML reads no as False
        ("[de, en]", "[de, de]", "line 2: languages names 'de' twice"),
        ("[de, en]", f"[de, {'x' * 51}]", "line 2: languages"),
        ("[de, en]", "[de, zh-tw]", r"line 2: languages\[1\] is 'zh-tw', but must be a language's code"),
        ("[de, en]", "[de, 419]", "line 2: languages"),
        ("[de, en]", "[de, '419']", "line 2: languages"),
        ("[de, en]", "[de, _en]", "line 2: languages"),
        ("  valid:", "  validation:", "line 3: splits has train, validation"),
        ("big_test", "test1", "line 6: splits: 'test1' is reserved: test, test1"),
        ("big_test", "2016", "line 6: splits has the key 2016, which must be text; write it in quotes"),
        ("citation: none", "title: again", "line 10: 'title' is a duplicate of line 1"),
        ("citation: none", "character_coverage: 2", "character_coverage is 2, but must be a number above 0"),
        ("citation: none", "downloads: {a: {sha256: 0}}", "downloads.a.sha256 is 0"),
        ("citation: none", "downloads: {a: {size: 1}}", "the key downloads.a.url is missing"),
        ("citation: none", "downloads: {a: {url: 'https://b', sha256: c}}", "sha256 is 'c', but must be 64"),
        ("citation: none", "downloads: {a: {url: b}}", "downloads.a: url is 'b', but must be http"),
        ("citation: none", "downloads: {a: {url: []}}", r"url is \[\], but must be"),
        ("citation: none", "downloads: {a: {url: 'https://b', size: x}}", "downloads.a.size is 'x'"),
        ("citation: none", "byte_fallback: 1", "byte_fallback is 1, but must be true or false"),
        ("citation: none", "learn_from: 0", "line 10: learn_from is 0, but must be a whole number from 1"),
        ("citation: none", f"character_coverage: 0x{'f' * 5000}", "a number has 20000 bits"),
        ("citation: none", "options: {seed: 9223372036854775808}", "line 10: a number has 64 bits"),
        ("citation: none", "options: &a {a: *a}", "is too large for the description"),
        ("citation: none", "options: &a [&b [&c [*a, *b, *c], *b], *b]", "must be a mapping|is too large"),
        (
            "citation: none",
            r'normalization: "nfkc\0x"',
            r"line 10: normalization is 'nfkc.x00x', .* one of identity",
        ),
        ("citation: none", "normalization: ../../nfkc", "must be one of identity, nfkc"),
        (
            "citation: none",
            "sacrebleu: {big_test: [1, 2]}",
            r"sacrebleu.big_test is \[1, 2\], but must be text",
        ),
        (
            "citation: none",
            "clean: {chars: {max: 9}}",
            "line 10: unknown key 'chars' in clean; choose from words",
        ),
        ("citation: none", "clean: {near_duplicates: 2}", "clean.near_duplicates is 2, but must be true or"),
        ("citation: none", "clean: {words: 9}", "clean.words is 9, but must be a mapping or null"),
        (
            "citation: none",
            "clean: {words: {maximum: 9}}",
            "unknown key 'maximum' in clean.words; .* min, max",
        ),
        (
            "citation: none",
            "clean: {words: {max: 0}}",
            "clean.words.max is 0, but must be a whole number from 1",
        ),
        ("citation: none", "clean: {words: {max: [1]}}", r"clean.words.max is \[1\]"),
        ("citation: none", "clean: {words: {max: many}}", "clean.words.max is 'many'"),
        ("citation: none", "clean: {words: {ratio: 0.5}}", "ratio is 0.5, but must be a number from 1"),
        ("citation: none", "clean: {words: {min: true}}", "clean.words.min is True"),
        (
            "citation: none",
            "normalise: {test: [lower_case]}",
            "line 10: .* unknown split 'test'; .* every, train",
        ),
        (
            "citation: none",
            "normalise: {train: [lowercase]}",
            r"\[0\] is 'lowercase', but must be one of lower_case",
        ),
        (
            "citation: none",
            "normalise: {train: lower_case}",
            "normalise.train is 'lower_case', but must be a",
        ),
        *(
            ("citation: none", f"downloads: {{a: {{url: '{url}'}}}}", "line 10: downloads.a: url is")
            for url in (
                "http://[::1/x",
                "http://é.org/x",
                "http://a b/x",
                "http://",
                "http://a:b/",
                "http:///x",
            )
        ),
        ("citation: none", "downloads: {a: {url: 'https://b', size: 99999999999999999999}}", "has 67 bits"),
        ("citation: none", "sacrebleu: {wmt: wmt14}", "splits has no test set 'wmt'"),
        ("citation: none", "citation: [", "is not valid YAML"),
    ],
)
def test_a_bad_description_names_key_and_line(tmp_path, old, new, complaint):
    assert old in DESCRIPTION
    with pytest.raises(UserError, match=complaint) as caught:
        described(tmp_path, DESCRIPTION.replace(old, new))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("language", [*sorted(RESERVED), "JSON", "None"])
def test_a_language_that_is_another_file_extension_is_refused(tmp_path, language):
    with pytest.raises(UserError, match=f"line 2: languages: '{language}' is the extension of other files"):
        described(tmp_path, DESCRIPTION.replace("[de, en]", f"[{language}, en]"))


def test_a_description_that_expands_beyond_memory(tmp_path):
    """A few lines of YAML that represent 10^9 values; the first check must not traverse them."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(UserError, match="is too large for the description"):
        described(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("url", ["http://127.0.0.1:80/x?a=b&c=%20", "https://[::1]:8080/x", "https://a.org"])
def test_valid_urls(tmp_path, url):
    text = DESCRIPTION.replace("citation: none", f"downloads: {{a: {{url: '{url}'}}}}")
    assert described(tmp_path, text).downloads["a"].urls == (url,)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "word"])
def test_a_description_that_is_not_a_mapping(tmp_path, text):
    with pytest.raises(UserError, match="must be a mapping"):
        described(tmp_path, text)
