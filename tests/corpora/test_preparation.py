"""The stages of preparation: output, skipping and refusals. fairseq does not run here."""

import importlib
import json
import logging
import multiprocessing
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tiny import DESCRIPTION, ENGLISH, GERMAN, contents, joined, lines, times, write

from user_dir.corpora import corpus as corpora
from user_dir.corpora import load_corpus, stamps, vocabulary
from user_dir.corpora import preparation as module
from user_dir.corpora import text_stages as text_module
from user_dir.corpora.preparation import prepare
from user_dir.corpora.raw_files import RawFiles
from user_dir.corpora.summary import _next_commands, summary
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("no_fairseq")


@pytest.fixture
def corpus(data):
    return load_corpus("tiny", data)


def redescribed(corpus, *changes: tuple[str, str], more: str = ""):
    """The tiny corpus with another description."""
    text = DESCRIPTION
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (corpus.folder / "corpus.yaml").write_text(text + more, encoding="utf-8")
    return load_corpus("tiny", corpus.folder.parent)


def test_all_stages_run(corpus, raw, no_fairseq):
    prepare(corpus, raw)
    assert corpus.require_prepared() is corpus
    assert lines(corpus.text("train", "de")) == GERMAN * 10
    assert lines(corpus.text("valid", "en")) == ENGLISH[:2]
    assert lines(corpus.text("big_test", "de")) == GERMAN[1:]
    assert lines(corpus.text("test1", "en")) == ENGLISH[2:]
    assert no_fairseq == [["train", "valid", "test", "test1"]]
    for subset in corpus.subsets.values():
        for language in corpus.languages:
            assert joined(corpus.segmented / f"{subset}.{language}") == lines(corpus.text(subset, language))
    assert not corpus.raw.exists()
    told = summary(corpus)
    for expected in ("40 pairs", "big_test (test)", "odd_test (test1)", "60 pieces"):
        assert expected in told
    assert f"next: python scripts/prepare.py tiny --config --data {corpus.folder.parent}" in told


def test_a_second_run_does_nothing(corpus, raw):
    prepare(corpus, raw)
    before = times(corpus.folder)
    prepare(corpus, raw)
    prepare(corpus)  # the text exists, so the raw files are not needed
    assert times(corpus.folder) == before
    prepare(corpus, raw, force=True)
    assert times(corpus.folder).items() & before.items() == {("corpus.yaml", before["corpus.yaml"])}


def test_vocabulary_sizes(corpus, raw, caplog):
    """A later run without the flag must not change the pieces that a checkpoint depends on."""

    def prepared(*arguments, **more):
        prepare(*arguments, **more)
        return len(lines(corpus.folder / "spm.vocab"))

    assert prepared(corpus, raw) == 60
    before = times(corpus.folder / "text")
    caplog.clear()
    assert prepared(corpus, raw, 50) == 50
    assert "checkpoints trained with the old one no longer fit" in caplog.text
    after = times(corpus.folder / "text")
    assert {path for path in after if after[path] == before[path]} == {
        path for path in after if not path.startswith("spm/")
    }
    before = times(corpus.folder)
    assert prepared(corpus, raw) == 50 and times(corpus.folder) == before
    assert prepared(corpus, raw, force=True) == 50
    stamp = corpus.folder / "spm.json"
    for size in ("50", -1, 2**40, True, [1]):  # nothing that was ever chosen
        record = json.loads(stamp.read_text(encoding="utf-8"))
        record["report"]["chosen_size"] = size
        stamp.write_text(json.dumps(record), encoding="utf-8")
        assert prepared(corpus, raw) == 60
    assert prepared(redescribed(corpus, ("size: 60", "size: 55"))) == 55


def test_a_size_that_nobody_gave_follows_from_the_pairs_and_stays(corpus, raw, caplog, monkeypatch):
    """Also that of a corpus prepared when 32,000 was the default: checkpoints have its pieces."""
    caplog.set_level(logging.INFO)
    corpus, stamp = redescribed(corpus, ("vocabulary_size: 60\n", "")), corpus.folder / "spm.json"
    monkeypatch.setattr(vocabulary, "suitable_size", lambda pairs: {40: 50, 41: 55}[pairs])

    def prepared(*more, **options):
        prepare(corpus, raw, *more, **options)
        return len(lines(corpus.folder / "spm.vocab"))

    assert prepared() == 50 and "50 pieces suits 40 training pairs" in caplog.text
    prepared(58)
    record = json.loads(stamp.read_text(encoding="utf-8"))
    record["report"]["chosen_size"] = None
    stamp.write_text(json.dumps(record), encoding="utf-8")
    before = times(corpus.folder)
    assert prepared() == 58 and times(corpus.folder) == before
    assert "keeping the 58 pieces" in caplog.text and "(50 suit 40 training pairs" in caplog.text
    assert prepared(force=True) == 58
    for language, sentences in (("de", GERMAN), ("en", ENGLISH)):
        write(raw / f"train.{language}.gz", [*sentences * 10, sentences[0]])
    assert prepared() == 55


def test_a_size_that_nobody_gave_is_possible(corpus, raw, caplog):
    """Of a small text all pieces are learned, and of one with many characters some more than these."""
    caplog.set_level(logging.INFO)
    corpus = redescribed(corpus, ("vocabulary_size: 60\n", ""))
    prepare(corpus, raw)
    size = len(lines(corpus.folder / "spm.vocab"))
    assert size < 400 and f"{size} pieces, because the training text has no more" in caplog.text
    assert f"{size} pieces" in summary(corpus)
    before = times(corpus.folder)
    prepare(corpus, raw)
    assert times(corpus.folder) == before
    many = [chr(0x4E00 + i) + chr(0x4E01 + i) for i in range(600)]
    for language in ("de", "en"):
        write(raw / f"train.{language}.gz", [" ".join(many)] * 3)
    prepare(corpus, raw)
    assert len(lines(corpus.folder / "spm.vocab")) > 600 and "are single characters" in caplog.text


def test_changed_raw_files_repeat_all_stages(corpus, raw):
    prepare(corpus, raw)
    write(raw / "second.de", ["Ein Vogel singt.", "Ja."])
    prepare(corpus, raw)
    assert lines(corpus.text("test1", "de")) == ["Ein Vogel singt.", "Ja."]
    assert joined(corpus.bin / "test1.de.bin")[0].startswith("Ein")


def test_lost_files_are_restored(corpus, raw):
    prepare(corpus, raw)
    whole = contents(corpus.folder)
    for name in ("text/train.de", "text/spm/valid.en", "spm.model", "bin/dict.de.txt"):
        (corpus.folder / name).unlink()
        prepare(corpus, raw)
        assert contents(corpus.folder) == whole


def kill_in(monkeypatch, stage):
    """Kill the process, as by SIGKILL, in the middle of a stage."""

    def killed(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def after(function, count):
        def wrapped(*arguments, **named):
            result = function(*arguments, **named)
            after.calls += 1
            return killed() if after.calls == count else result

        after.calls = 0
        return wrapped

    where, name, count = {
        "text": (text_module, "write_rows", 2),
        "model": (vocabulary, "train_model", 1),
        "bin": (module, "preprocess", 1),
        "move": (Path, "replace", 3),
        "move later": (Path, "replace", 15),
        "dictionary": (module, "write_dictionary", 1),
    }[stage]
    monkeypatch.setattr(where, name, after(getattr(where, name), count))


@pytest.mark.parametrize("stage", ["text", "model", "bin", "move", "move later", "dictionary"])
def test_a_killed_run_is_resumed(corpus, raw, tmp_path, monkeypatch, stage):
    shutil.copytree(corpus.folder.parent, tmp_path / "other")
    undisturbed = load_corpus("tiny", tmp_path / "other")
    prepare(undisturbed, raw)
    with monkeypatch.context() as patch:
        kill_in(patch, stage)
        child = multiprocessing.get_context("fork").Process(target=prepare, args=(corpus, raw))
        child.start()
        child.join(600)
    assert child.exitcode == -signal.SIGKILL
    with pytest.raises(UserError, match="not prepared"):
        corpus.require_prepared()
    prepare(corpus, raw)
    assert contents(corpus.folder) == contents(undisturbed.folder)


def test_empty_sides_are_only_dropped_from_the_training_text(corpus, raw):
    write(raw / "train.de.gz", ["", *GERMAN * 10, " ", "\u3000"])
    write(raw / "train.en.gz", ["The.", *ENGLISH * 10, "The.", "The."])
    write(raw / "first.en", [ENGLISH[1], "", ENGLISH[3]])
    prepare(corpus, raw)
    assert lines(corpus.text("train", "de")) == GERMAN * 10
    assert lines(corpus.text("train", "en")) == ENGLISH * 10
    assert lines(corpus.text("test", "en")) == [ENGLISH[1], "", ENGLISH[3]]
    assert re.search(r"train +40 pairs\n +3 dropped: a side was empty\n", summary(corpus))


def test_a_translation_memory_and_plain_files(corpus, raw):
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv><tuv xml:lang="de"><seg>{de}</seg></tuv></tu>\n'
        for de, en in [*zip(GERMAN, ENGLISH), ("", "Only English.")]
    )
    (raw / "memory.tmx").write_text(f'<tmx version="1.4"><body>\n{units}</body></tmx>\n', encoding="utf-8")
    corpus = redescribed(corpus, ("train: train.{language}", 'train: ["train.{language}", memory.tmx]'))
    prepare(corpus, raw)
    assert lines(corpus.text("train", "de")) == GERMAN * 11
    assert lines(corpus.text("train", "en")) == ENGLISH * 11
    assert "1 dropped: a side was empty" in summary(corpus)


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


def test_the_number_of_references_must_match(corpus, raw):
    write(raw / "natural.de", GERMAN)
    write(raw / "natural.en", ENGLISH)
    old = "big_test: first.{language}"
    new = "big_test: {file: 'first.{language}', reference: 'natural.{language}'}"
    with pytest.raises(UserError, match="big_test of tiny has 3 pairs, but 4 references"):
        prepare(redescribed(corpus, (old, new)), raw)


PUBLISHED = f"downloads:\n  dev.de: {{url: 'http://127.0.0.1:9/dev.de', sha256: {'a' * 64}}}\n"


def test_a_different_raw_file_is_used_with_a_warning(corpus, raw, caplog):
    corpus = redescribed(corpus, more=PUBLISHED)
    with caplog.at_level(logging.WARNING):
        prepare(corpus, raw)
    assert "dev.de is not the published file" in caplog.text
    assert lines(corpus.text("valid", "de")) == GERMAN[:2]


def test_existing_raw_files_are_not_downloaded(corpus, raw):
    """With the files in raw/ no network is needed; it is used for missing files."""
    shutil.copytree(raw, corpus.raw)
    prepare(corpus)
    (corpus.raw / "dev.de").unlink()
    corpus = redescribed(corpus, more=PUBLISHED)
    prepare(corpus)  # the text is complete
    with pytest.raises(UserError, match=r"dev\.de could not be downloaded"):
        prepare(corpus, force=True)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda raw: (raw / "dev.en").unlink(), r"neither dev\.en nor dev\.en\.gz is in .*raw"),
        (lambda raw: write(raw / "dev.en", ENGLISH), r"dev\.de has 2 lines, but .*dev\.en has 4"),
        (
            lambda raw: [write(raw / f"train.{each}.gz", []) for each in ("de", "en")],
            "split train of tiny has no",
        ),
        (lambda raw: write(raw / "train.de.gz", [""] * 40), "split train of tiny has no sentence pair"),
        (
            lambda raw: (raw / "first.de").write_bytes(b"gut\nb\xf6se\n\n"),
            r"first\.de, line 2: byte 0xf6 is not UTF-8",
        ),
        (
            lambda raw: (raw / "train.de.gz").write_bytes(b"plain"),
            r"train\.de\.gz is not a gzip file",
        ),
    ],
)
def test_bad_raw_files(corpus, raw, spoil, complaint):
    spoil(raw)
    with pytest.raises(UserError, match=complaint) as caught:
        prepare(corpus, raw)
    assert "\n" not in str(caught.value)
    assert not stamps.read_stamp(corpus.folder / "text" / "stamp.json")
    assert not list(corpus.folder.rglob("*.part*"))


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ({"vocabulary_size": 100_000}, r"use --vocab-size \d+ or less$"),  # fewer than suit so many pairs
        ({"vocabulary_size": 10}, r"use --vocab-size \d+ or more, such as 400 for its 40 pairs$"),
        ({"vocabulary_size": 0}, "--vocab-size 0 must be positive"),
        ({"vocabulary_size": 3_000_000_000}, "--vocab-size must be at most 2147483647"),
        ({"vocabulary_size": 1 << 20_000}, "--vocab-size must be at most"),
        pytest.param(
            {"vocabulary_size": 2**31 - 1}, r"use --vocab-size \d+ or less", marks=pytest.mark.nightly
        ),
        ({"workers": 1 << 20_000}, "--workers must be at most 1000"),
        ({"workers": 0}, "--workers 0 must be positive"),
    ],
)
def test_bad_settings(corpus, raw, named, complaint):
    with pytest.raises(UserError, match=complaint):
        prepare(corpus, raw, **named)


def test_a_percent_sign_in_the_name_of_a_corpus(monkeypatch, capsys):
    """argparse would interpret a percent sign in a help text."""
    script = importlib.import_module("user_dir.commands.prepare")
    monkeypatch.setattr(corpora, "known_corpora", lambda: ["50%", "100%s", "%(prog)s"])
    monkeypatch.setattr(sys, "argv", ["prepare.py", "--help"])
    with pytest.raises(SystemExit) as caught:
        script.main()
    assert caught.value.code == 0
    assert "one of: 50%, 100%s, %(prog)s" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["dev.de", "nowhere"])
def test_raw_must_be_a_folder(corpus, raw, name):
    with pytest.raises(UserError, match=rf"--raw .*{name} is not a folder"):
        prepare(corpus, raw / name)


@pytest.mark.parametrize("place", ["text", "text/normalised/mine", "bin", "link"])
def test_raw_files_that_preparing_would_replace(corpus, raw, place):
    """They may be the only copy."""
    folder = corpus.folder / place
    if place == "link":
        (corpus.folder / "text").mkdir()
        folder.symlink_to("text")
    shutil.copytree(raw, folder, dirs_exist_ok=True)
    before = contents(corpus.folder)
    with pytest.raises(UserError, match=rf"--raw .*{place} is in .*; copy the raw files elsewhere"):
        prepare(corpus, folder)
    assert contents(corpus.folder) == before
    shutil.copytree(folder, corpus.raw)
    prepare(corpus, corpus.raw)


def test_a_raw_file_that_preparing_would_replace(corpus, raw):
    """It is in a folder that the description names, or where a link leads."""
    place = corpus.folder / "text"
    place.mkdir()
    (raw / "dev.de").rename(place / "valid.de")
    (raw / "dev.de").symlink_to(place / "valid.de")
    before = contents(place)
    with pytest.raises(UserError, match=r"the raw file .*raw/dev\.de is in .*text, whose files"):
        prepare(corpus, raw)
    corpus = redescribed(corpus, ("dev.", "text/valid."))
    with pytest.raises(UserError, match=r"the raw file .*text/valid\.de is in .*text, whose files"):
        prepare(corpus, corpus.folder)
    assert contents(place) == before


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("train.{language}", "train", "line 3: splits: train is 'train', but must have {language} in it"),
        ("train.{language}", "12", "splits: train is 12, but must be a file name"),
        ("licence", "tokenised: true\nlicence", "line 9: tokenised: big_test requires a reference"),
        ("licence", "origin: plain\nlicence", "unknown origin 'plain'; choose from parallel_text, "),
    ],
)
def test_a_description_that_does_not_suit_its_origin(corpus, raw, old, new, complaint):
    with pytest.raises(UserError, match=complaint):
        prepare(redescribed(corpus, (old, new)), raw)


# The real corpora, if available locally: their checksums and numbers of pairs.
SHARED = Path(os.environ.get("CORPORA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@pytest.mark.parametrize(("name", "number"), [("multi30k", 29_000), ("tanaka", 50_000)])
def test_the_published_files(name, number, tmp_path, caplog):
    if not (SHARED / name).is_dir():
        pytest.skip(f"no copy of {name} in {SHARED}; set CORPORA to a folder that has one")
    corpus = load_corpus(name, tmp_path)
    with caplog.at_level(logging.WARNING):
        module.make_text(corpus, RawFiles(corpus, SHARED / name), workers=1, force=False)
    assert caplog.text == ""  # all checksums match corpus.yaml
    report = stamps.read_stamp(corpus.folder / "text" / "stamp.json")["report"]
    assert report["train"] == {"pairs": number, "dropped": {}}


@pytest.mark.parametrize(
    "name, command",
    (("multi30k", "train.py configs/multi30k-de-en/"), ("multi30k-mt", "prepare.py multi30k-mt")),
)
def test_the_next_command_is_for_this_corpus_not_for_one_whose_name_begins_alike(name, command):
    (told,) = _next_commands(load_corpus(name))
    assert f"scripts/{command}" in told
