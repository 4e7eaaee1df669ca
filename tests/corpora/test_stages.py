"""The stages of preparation: output, skipping, refusals; kills: ``end_to_end/test_faults.py``."""

import json
import logging
import os
import re
import shutil
from pathlib import Path

import pytest
from commands import here
from fairseq.data import Dictionary, data_utils
from tiny import DESCRIPTION, ENGLISH, GERMAN, contents, joined, lines, times, write

from user_dir.corpora import load_corpus, stages, stamps
from user_dir.corpora.stages import prepare
from user_dir.corpora.summary import summary
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def redescribed(corpus, old: str = "", new: str = "", more: str = ""):
    """The tiny corpus with another description."""
    assert old in DESCRIPTION
    (corpus.folder / "corpus.yaml").write_text(DESCRIPTION.replace(old, new) + more, encoding="utf-8")
    return load_corpus("tiny", corpus.folder.parent)


def binarised(corpus, subset: str, language: str) -> list[str]:
    """The sentences that fairseq reads, as text."""
    dictionary = Dictionary.load(str(corpus.bin / f"dict.{language}.txt"))
    prefix = corpus.bin / f"{subset}.{'-'.join(corpus.languages)}.{language}"
    data = data_utils.load_indexed_dataset(str(prefix), dictionary)
    return [dictionary.string(sentence, "sentencepiece") for sentence in data]


def test_all_stages_run(corpus, raw):
    prepare(corpus, raw)
    assert corpus.require_prepared() is corpus
    assert lines(corpus.text("train", "de")) == GERMAN * 10
    assert lines(corpus.text("valid", "en")) == ENGLISH[:2]
    assert lines(corpus.text("big_test", "de")) == GERMAN[1:]
    assert lines(corpus.text("test1", "en")) == ENGLISH[2:]
    for subset in corpus.subsets.values():
        for language in corpus.languages:
            text = lines(corpus.text(subset, language))
            assert joined(corpus.segmented / f"{subset}.{language}") == text
            assert binarised(corpus, subset, language) == text
    assert not corpus.raw.exists() and not list(corpus.folder.rglob("*.part*"))
    told = summary(corpus)
    for expected in (
        "40 pairs",
        "big_test (test)",
        "odd_test (test1)",
        "64 symbols",
    ):
        assert expected in told
    assert f"next: python scripts/prepare.py tiny --config --data {corpus.folder.parent}" in told


def test_binarised_data_are_those_of_fairseq_preprocess(corpus, raw, tmp_path):
    write(raw / "first.en", [ENGLISH[1], "", ENGLISH[3]])
    write(raw / "second.en", [ENGLISH[2], "☃ Ω unknown"])
    prepare(corpus, raw)
    assert "warning: en: " in summary(corpus)
    shutil.copy(corpus.bin / "dict.txt", tmp_path / "dict.txt")
    words = ["--source-lang", "de", "--target-lang", "en", "--joined-dictionary"]
    words += ["--srcdict", tmp_path / "dict.txt", "--destdir", tmp_path / "bin"]
    for name, subsets in (("train", ["train"]), ("valid", ["valid"]), ("test", ["test", "test1"])):
        words += [f"--{name}pref", ",".join(str(corpus.segmented / subset) for subset in subsets)]
    here("preprocess", *words)
    theirs = {name: text for name, text in contents(tmp_path / "bin").items() if not name.endswith(".log")}
    ours = contents(corpus.bin)
    assert len(theirs) == 18 and theirs == {name: ours[name] for name in theirs}


def test_a_second_run_does_nothing(corpus, raw):
    prepare(corpus, raw)
    before = times(corpus.folder)
    prepare(corpus, raw)
    prepare(corpus)  # the text exists, so the raw files are not needed
    assert times(corpus.folder) == before
    prepare(corpus, raw, force=True)
    assert times(corpus.folder).items() & before.items() == {("corpus.yaml", before["corpus.yaml"])}


def test_what_changed_is_made_again(corpus, raw):
    prepare(corpus, raw)
    whole = contents(corpus.folder)
    for name in ("text/train.de", "text/spm/valid.en", "spm.model", "bin/dict.de.txt"):
        (corpus.folder / name).unlink()
        prepare(corpus, raw)
        assert contents(corpus.folder) == whole
    write(raw / "second.de", ["Das Kind schläft.", "Die Katze singt."])
    prepare(corpus, raw)
    assert lines(corpus.text("test1", "de")) == ["Das Kind schläft.", "Die Katze singt."]
    assert binarised(corpus, "test1", "de") == ["Das Kind schläft.", "Die Katze singt."]
    prepare(redescribed(corpus, more="split_digits: true\n"), raw)
    assert stamps.read_stamp(corpus.bin / "stamp.json")["inputs"]["split_digits"] is True


def test_the_size_of_a_vocabulary_stays_until_another_is_given(corpus, raw, caplog):
    """A later run without the flag must not change the pieces that a checkpoint depends on."""

    def prepared(*arguments, **more):
        prepare(*arguments, **more)
        return len(lines(corpus.folder / "spm.vocab"))

    assert prepared(corpus, raw) == 60
    before = times(corpus.folder / "text")
    assert prepared(corpus, raw, 50) == 50
    assert "checkpoints trained with the old ones no longer fit" in caplog.text
    after = times(corpus.folder / "text")
    assert {path for path in after if after[path] != before[path]} == {
        path for path in after if path.startswith("spm/")
    }
    before = times(corpus.folder)
    assert prepared(corpus, raw) == 50 and times(corpus.folder) == before
    assert prepared(corpus, raw, force=True) == 50
    assert prepared(corpus, raw, 55) == 55


def test_an_interruption_leaves_no_new_pieces_beside_text_in_the_old_ones(corpus, raw, monkeypatch):
    prepare(corpus, raw)
    before = contents(corpus.folder)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stages, "_binarise", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        prepare(corpus, raw, 50)
    assert contents(corpus.folder) == before
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stages.stamps, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        prepare(corpus, raw, 50)
    with pytest.raises(UserError, match="not prepared"):
        corpus.require_prepared()


def test_empty_sides_are_only_dropped_from_the_training_text(corpus, raw):
    write(raw / "train.de.gz", ["", *GERMAN * 10, " ", "\u3000"])
    write(raw / "train.en.gz", ["The.", *ENGLISH * 10, "The.", "The."])
    write(raw / "first.en", [ENGLISH[1], "", ENGLISH[3]])
    prepare(corpus, raw)
    assert lines(corpus.text("train", "de")) == GERMAN * 10
    assert lines(corpus.text("train", "en")) == ENGLISH * 10
    assert lines(corpus.text("test", "en")) == [ENGLISH[1], "", ENGLISH[3]]
    assert re.search(r"train +40 pairs\n +3 dropped: a side was empty\n", summary(corpus))


def test_the_example_in_the_readme(tmp_path):
    """A user's two files with the description in data/README.md."""
    readme = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(.*?)```", readme, flags=re.DOTALL)[1]
    folder = tmp_path / "data" / "talks" / "raw"
    folder.mkdir(parents=True)
    (folder.parent / "corpus.yaml").write_text(example, encoding="utf-8")
    for language, text in (("sl", GERMAN), ("en", ENGLISH)):
        write(folder / f"talks.{language}", text * 20)
        write(folder / f"valid.{language}", text[:2])
        write(folder / f"test.{language}", text[2:])
    corpus = load_corpus("talks", tmp_path / "data")
    prepare(corpus, vocabulary_size=60)
    assert lines(corpus.text("held_back", "sl")) == GERMAN[2:]
    held_out = example.replace("valid: valid.{language}", "valid: {held_out: 50}")
    (folder.parent / "corpus.yaml").write_text(held_out, encoding="utf-8")
    prepare(load_corpus("talks", tmp_path / "data"))
    assert lines(corpus.text("valid", "sl")) == [GERMAN[49 % 4]]
    assert len(lines(corpus.text("train", "sl"))) == 79


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda raw: (raw / "dev.en").unlink(), r"dev\.en is not in .*raw; put it there"),
        (lambda raw: write(raw / "dev.en", ENGLISH), r"dev\.de has 2 sentences, the other has more"),
        (lambda raw: write(raw / "train.de.gz", [""] * 40), "split train of tiny has no sentence pair"),
        (
            lambda raw: (raw / "first.de").write_bytes(b"gut\nb\xf6se\n\n"),
            r"first\.de, line 2: byte 0xf6 is not",
        ),
        (lambda raw: (raw / "train.de.gz").write_bytes(b"plain"), r"cannot read .*train\.de\.gz"),
        (lambda raw: write(raw / "references.en", ENGLISH), "big_test of tiny has 3 pairs, but 4 references"),
    ],
)
def test_bad_raw_files(corpus, raw, spoil, complaint):
    spoil(raw)
    if (raw / "references.en").exists():
        write(raw / "references.de", GERMAN)
        new = "{file: 'first.{language}', reference: 'references.{language}'}"
        corpus = redescribed(corpus, "first.{language}", new)
    with pytest.raises(UserError, match=complaint) as caught:
        prepare(corpus, raw)
    assert "\n" not in str(caught.value)
    assert not (corpus.folder / "text" / "stamp.json").exists()
    assert not list(corpus.folder.rglob("*.part*"))


def test_what_cannot_be_prepared(corpus, raw):
    with pytest.raises(UserError, match=r"--raw .*nowhere is not a folder"):
        prepare(corpus, raw / "nowhere")
    with pytest.raises(
        UserError, match=r"100000 pieces do not suit the training text; use --vocab-size \d+ or"
    ):
        prepare(corpus, raw, 100_000)
    shutil.copytree(raw, corpus.folder / "text" / "mine")  # perhaps the only copy
    with pytest.raises(UserError, match=r"--raw .*mine is a folder whose files preparing replaces"):
        prepare(corpus, corpus.folder / "text" / "mine")


def test_a_folder_may_be_a_link_to_another_disk(corpus, raw, tmp_path):
    (tmp_path / "scratch").mkdir()
    corpus.bin.symlink_to(tmp_path / "scratch")
    prepare(corpus, raw)
    assert (tmp_path / "scratch" / "dict.de.txt").is_file() and corpus.bin.is_symlink()


# The real corpora, if available locally: their checksums and numbers of pairs.
SHARED = Path(os.environ.get("CORPORA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "number"), [("multi30k", 29_000), ("tanaka", 50_000)])
def test_the_published_files(name, number, tmp_path, caplog):
    if not (SHARED / name).is_dir():
        pytest.skip(f"no copy of {name} in {SHARED}; set CORPORA to a folder that has one")
    corpus = load_corpus(name, tmp_path)
    corpus.folder.mkdir()
    with caplog.at_level(logging.WARNING):
        stages.make_text(corpus, stages.RawFiles(corpus, SHARED / name), force=False)
    assert caplog.text == ""  # all checksums match corpus.yaml
    report = json.loads((corpus.folder / "text" / "stamp.json").read_text())["report"]
    assert report["train"] == {"pairs": number, "dropped": {}}
