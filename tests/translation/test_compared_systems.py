"""Reading the systems to compare: evaluations, plain text, and their possible errors."""

import bz2
import gzip
import importlib
import json
from pathlib import Path

import pytest
from helpers import write_packed
from sacrebleu.dataset import DATASETS

from user_dir.errors import UserError
from user_dir.translation.compared_systems import read_systems, with_source_words

COMPARE = Path(__file__).resolve().parents[2] / "scripts" / "compare.py"


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def evaluation(tmp_path):
    """A function that writes an evaluation like evaluate.py, and returns the path of the JSON."""

    def make(name, lines=("a b", "c d"), references=None, signature="nrefs:1|case:mixed|tok:13a"):
        references = references or write(tmp_path / "ref.en", "a b", "c e")
        write(tmp_path / name / "test.en", *lines)
        record = {"test_set": "test", "direction": "de-en", "references": str(references)}
        return write(tmp_path / name / "test.json", json.dumps({**record, "bleu_signature": signature}))

    return make


def refused(*words: str, named, references=None) -> None:
    with pytest.raises(UserError) as error:
        read_systems(named, references)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("direction", "de", "'de'"),
        ("direction", "de-../../en", "../.."),
        ("direction", "de-fr", "de-fr"),
        ("direction", "en-de", "en-de"),
        ("bleu_signature", "case:mixed|tok:wget", "wget"),
        ("references", "sacrebleu's wmt14", "de-xx"),
    ],
)
def test_an_evaluation_is_not_believed(evaluation, tmp_path, key, value, word):
    files = [evaluation("a"), evaluation("b")]
    record = json.loads(files[1].read_text()) | {key: value}
    if key == "references":
        record["direction"] = "de-xx"
    write(files[1], json.dumps(record))
    for name in ("test.fr", "test.de", "test.xx"):
        write(files[1].parent / name, "a b", "c d")
    refused(word, str(files[1]), named=[("a", files[:1]), ("b", files[1:])])


def test_translations_into_two_languages_are_not_compared(evaluation, tmp_path):
    one, other = evaluation("a"), evaluation("b", references=write(tmp_path / "other" / "ref", "a b", "c e"))
    record = json.loads(other.read_text()) | {"direction": "de-fr"}
    write(other, json.dumps(record))
    write(other.parent / "test.fr", "a b", "c d")
    refused("fr", "en", str(other), named=[("a", [one]), ("b", [other])])


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("user_dir.translation.compared_systems.MAX_WHOLE", 1000)
    write(tmp_path / "b.en", "a b")
    for pack, ending in ((gzip, "gz"), (bz2, "bz2")):
        path = tmp_path / f"a.en.{ending}"
        path.write_bytes(pack.compress(b"a b\n"))
        systems, _ = read_systems([("a", [path]), ("b", [tmp_path / "b.en"])], [tmp_path / "b.en"])
        assert systems[0].translations == (["a b"],)
        for content in (b"x" * 1001, b"a b\n" * 300):
            path.write_bytes(pack.compress(content))
            refused(path.name, "MiB", named=[("a", [path]), ("b", [tmp_path / "b.en"])])
        path.write_bytes(pack.compress(b"a b\n")[:-5])
        refused(path.name, "truncated", named=[("a", [path]), ("b", [tmp_path / "b.en"])])
        path.write_bytes(b"no archive")
        refused(path.name, "is not a", "file", named=[("a", [path]), ("b", [tmp_path / "b.en"])])


def test_evaluations_provide_references_and_settings(evaluation, tmp_path):
    files = [evaluation(name, signature="nrefs:1|case:lc|tok:char") for name in "ab"]
    plain = write(tmp_path / "c.en", "x", "y")
    systems, test_set = read_systems([("a", files[:1]), ("b", files[1:]), ("c", [plain])], None)
    assert [each.translations for each in systems] == [(["a b", "c d"],), (["a b", "c d"],), (["x", "y"],)]
    assert test_set.references == [["a b", "c e"]]
    assert (test_set.tokenize, test_set.lowercase) == ("char", True)
    japanese = [evaluation(name, signature="case:mixed|tok:ja-mecab-0.996-IPA") for name in "de"]
    assert read_systems([("d", japanese[:1]), ("e", japanese[1:])], None)[1].tokenize == "ja-mecab"
    other = write(tmp_path / "other.en", "1", "2")
    assert (
        read_systems([("a", files[:1]), ("b", files[1:])], [other, other])[1].references == [["1", "2"]] * 2
    )


def test_translations_may_be_compressed(evaluation, tmp_path):
    plain, packed = evaluation("a"), evaluation("b", lines=["x y", "z"])
    write_packed(tmp_path / "b" / "test.en.bz2", (tmp_path / "b" / "test.en").read_text())
    (tmp_path / "b" / "test.en").unlink()
    systems, _ = read_systems([("a", [plain]), ("b", [packed])], None)
    assert systems[1].translations == (["x y", "z"],)


def test_references_of_sacrebleu(evaluation, tmp_path, monkeypatch):
    monkeypatch.setattr(DATASETS["wmt16"], "_outdir", str(tmp_path))
    files = [evaluation(name, references="sacrebleu's wmt16") for name in "ab"]
    refused("references of", "wmt16.de-en.ref", "--ref", named=[("a", files[:1]), ("b", files[1:])])
    write(tmp_path / "wmt16.de-en.ref", "r", "s")
    assert read_systems([("a", files[:1]), ("b", files[1:])], None)[1].references == [["r", "s"]]


def test_missing_references_are_replaced_by_others(evaluation, tmp_path):
    gone = tmp_path / "gone" / "ref.en"
    files, given = [evaluation(name, references=gone) for name in "ab"], write(tmp_path / "own.en", "x", "y")
    refused(str(gone), "--ref", named=[("a", files[:1]), ("b", files[1:])])
    _, test_set = read_systems([("a", files[:1]), ("b", files[1:])], [given])
    assert (test_set.references, test_set.tokenize, test_set.language) == ([["x", "y"]], "13a", "en")


def test_incomparable_systems_are_refused(evaluation, tmp_path):
    a, b = evaluation("a"), evaluation("b")
    short = write(tmp_path / "short.en", "x")
    refused("a is the only system", "baseline first", named=[("a", [a])])
    refused("b has 2 files and a 1 file", named=[("a", [a]), ("b", [b, b])])
    refused("short.en has 1 line and the references 2", named=[("a", [a]), ("b", [short])])
    refused("require --ref", named=[("a", [short]), ("b", [short])])
    refused("empty.en is empty", named=[("a", [a]), ("b", [write(tmp_path / "empty.en")])])
    refused("none.en cannot be read", named=[("a", [a]), ("b", [tmp_path / "none.en"])])
    other = evaluation("c", references=write(tmp_path / "ref2.en", "a b", "c f"))
    refused("different references", "c", "a", named=[("a", [a]), ("c", [other])])
    cased = evaluation("d", signature="nrefs:1|case:lc|tok:13a")
    refused("tok:13a, case:lc", "evaluate both with the same settings", named=[("a", [a]), ("d", [cased])])
    half = write(tmp_path / "half.json", '{"test_set": "test"}')
    refused("half.json", "lacks direction, references", named=[("a", [a]), ("b", [half])])
    refused("cut.json", "lacks", named=[("a", [a]), ("b", [write(tmp_path / "cut.json", '{"test')])])
    two = [write(tmp_path / "two.en", "x", "y"), short]
    refused("short.en has 1 line", "two.en 2", named=[("a", [a]), ("b", [b])], references=two)
    (tmp_path / "b" / "test.en").unlink()
    refused("test.en cannot be read", named=[("a", [a]), ("b", [b])])


def test_sentences_are_selected_by_the_words_of_their_sources(tmp_path):
    source = write(tmp_path / "test.de", "a b c", "d", "e f")
    reference = write(tmp_path / "test.en", "A B C", "D", "E F")
    other = write(tmp_path / "other.en", "1", "2", "3")
    read = read_systems([("a", [reference]), ("b", [other])], [reference, other])
    for bounds, kept in (((2, None), [0, 2]), ((None, 2), [1, 2]), ((2, 2), [2])):
        systems, test_set = with_source_words(*read, source, *bounds)
        assert test_set.references == [
            [each.read_text().split("\n")[n] for n in kept] for each in (reference, other)
        ]
        assert [each.translations[0] for each in systems] == test_set.references
        assert [each.name for each in systems] == ["a", "b"]
    for bounds, words in (((4, None), "4 words or more"), ((4, 5), "4 to 5 words")):
        with pytest.raises(UserError, match=f"no sentence of .*test.de has {words}; they have 1 to 3 words"):
            with_source_words(*read, source, *bounds)
    with pytest.raises(UserError, match=r"short.de has 1 line and the references 3"):
        with_source_words(*read, write(tmp_path / "short.de", "x"), 1, None)


def test_comparison_of_long_sentences(tmp_path, capsys, monkeypatch):
    """``compare.py`` scores the sentences that it was asked for, and those alone."""
    source = write(tmp_path / "test.de", "a b c", "d", "e f")
    reference = write(tmp_path / "test.en", "one two three four five", "one", "six seven eight nine ten")
    good = write(tmp_path / "good.en", "one two three four five", "wrong", "six seven eight nine ten")
    main = importlib.import_module("user_dir.commands.compare").main
    command = ["--system", "a", str(good), "--system", "b", str(reference), "--ref", str(reference)]
    command += ["--metrics", "BLEU", "--samples", "10"]
    scores = []
    for more in ([], ["--min-words", "2", "--source", str(source)]):
        main([*command, *more])
        shown = capsys.readouterr().out
        (row,) = (line.split() for line in shown.splitlines() if line.startswith("| BLEU") and " a " in line)
        scores.append(float(row[5]))
    assert scores[0] < 100 and scores[1] == 100
    assert "2 sentences, whose source has 2 words or more." in shown
    for more, said in (
        (["--min-words", "2"], "need --source FILE"),
        (["--source", str(source)], "has no use without"),
        (["--min-words", "3", "--max-words", "2", "--source", str(source)], "--min-words 3 is more than"),
        (["--samples", str(10**18)], "1,000,000"),
    ):
        with pytest.raises(SystemExit):
            main([*command, *more])
        assert said in capsys.readouterr().err
    with pytest.raises(UserError, match="3 words or more"):  # a single sentence, of which no resample differs
        main([*command, "--min-words", "3", "--source", str(source)])
