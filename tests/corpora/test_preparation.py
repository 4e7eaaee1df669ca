"""The stages of preparation: output, skipping and refusals. fairseq does not run here."""

import hashlib
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
from tiny import DESCRIPTION, ENGLISH, GERMAN, write

from user_dir.corpora import corpus as corpora
from user_dir.corpora import load_corpus, stamps, vocabulary
from user_dir.corpora import preparation as module
from user_dir.corpora import text_stages as text_module
from user_dir.corpora.preparation import prepare
from user_dir.corpora.raw_files import RawFiles
from user_dir.corpora.summary import _next_command, summary
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
OTHER_NAMES = {
    "train": "train",
    "dev": "valid",
    "first": "test",
    "second": "test1",
}  # as prepared text is named


@pytest.fixture(autouse=True)
def binarised(monkeypatch):
    """The subsets binarised so far, by a replacement that copies the pieces."""
    calls = []

    def copy(languages, subsets, folder, dictionary, target, workers):
        calls.append(subsets)
        shutil.copy(dictionary, target / "dict.de.txt")
        for subset in subsets:
            for language in languages:
                shutil.copy(folder / f"{subset}.{language}", target / f"{subset}.{language}.bin")

    monkeypatch.setattr(module, "preprocess", copy)
    return calls


def tree(folder: Path) -> dict[str, str]:
    """Every file under a folder, with a hash of its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def test_all_stages_run(data, raw, binarised):
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    assert corpus.require_prepared() is corpus
    assert lines(corpus.text("train", "de")) == GERMAN * 10
    assert lines(corpus.text("valid", "en")) == ENGLISH[:2]
    assert lines(corpus.text("big_test", "de")) == GERMAN[1:]
    assert lines(corpus.text("test1", "en")) == ENGLISH[2:]
    assert binarised == [["train", "valid", "test", "test1"]]
    for subset in corpus.subsets.values():
        for language in corpus.languages:
            pieces = lines(corpus.segmented / f"{subset}.{language}")
            joined = ["".join(line.split(" ")).replace("▁", " ").strip() for line in pieces]
            assert joined == lines(corpus.text(subset, language))
    assert not corpus.raw.exists()
    told = summary(corpus)
    for expected in (
        "40 pairs",
        "big_test (test)",
        "odd_test (test1)",
        "60 pieces",
        f"next: python scripts/prepare.py tiny --config --data {data}",
    ):
        assert expected in told


def test_a_second_run_does_nothing(data, raw):
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    before = times(corpus.folder)
    prepare(corpus, raw)
    prepare(corpus)  # the text exists, so the raw files are not needed
    assert times(corpus.folder) == before
    prepare(corpus, raw, force=True)
    assert not set(times(corpus.folder).items()) & set(before.items()) - {
        (str(corpus.folder / "corpus.yaml"), before[str(corpus.folder / "corpus.yaml")])
    }


def test_another_vocabulary_size_repeats_dependent_stages(data, raw, caplog):
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    before = times(corpus.folder / "text")
    caplog.clear()
    prepare(corpus, raw, vocabulary_size=50)
    assert "checkpoints trained with the old one no longer fit" in caplog.text
    assert len(lines(corpus.folder / "spm.vocab")) == 50
    after = times(corpus.folder / "text")
    assert {path for path in after if after[path] == before[path]} == {
        path for path in after if "/spm/" not in path
    }


def test_a_chosen_vocabulary_size_is_kept(data, raw):
    """A later run without the flag must not change the pieces that a checkpoint depends on."""
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw, vocabulary_size=50)
    before = times(corpus.folder)
    prepare(corpus, raw)
    assert times(corpus.folder) == before
    prepare(corpus, raw, force=True)
    assert len(lines(corpus.folder / "spm.vocab")) == 50


def test_another_size_in_the_description_is_noticed(data, raw):
    prepare(load_corpus("tiny", data), raw)
    (data / "tiny" / "corpus.yaml").write_text(DESCRIPTION.replace("size: 60", "size: 50"), encoding="utf-8")
    corpus = load_corpus("tiny", data)
    prepare(corpus)
    assert len(lines(corpus.folder / "spm.vocab")) == 50


def test_changed_raw_files_repeat_all_stages(data, raw):
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    write(raw / "second.de", ["Ein Vogel singt.", "Ja."])
    prepare(corpus, raw)
    assert lines(corpus.text("test1", "de")) == ["Ein Vogel singt.", "Ja."]
    assert "Ein" in (corpus.bin / "test1.de.bin").read_text().replace("▁", "").replace(" ", "")


@pytest.mark.parametrize("name", ["text/train.de", "text/spm/valid.en", "spm.model", "bin/dict.de.txt"])
def test_a_lost_file_is_restored(data, raw, name):
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    whole = tree(corpus.folder)
    (corpus.folder / name).unlink()
    prepare(corpus, raw)
    assert tree(corpus.folder) == whole


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
def test_a_killed_run_is_resumed(data, raw, tmp_path, monkeypatch, stage):
    shutil.copytree(data, tmp_path / "other")
    undisturbed = load_corpus("tiny", tmp_path / "other")
    prepare(undisturbed, raw)
    corpus = load_corpus("tiny", data)
    with monkeypatch.context() as patch:
        kill_in(patch, stage)
        child = multiprocessing.get_context("fork").Process(target=prepare, args=(corpus, raw))
        child.start()
        child.join(600)
    assert child.exitcode == -signal.SIGKILL
    with pytest.raises(UserError, match="not prepared"):
        corpus.require_prepared()
    prepare(corpus, raw)
    assert tree(corpus.folder) == tree(undisturbed.folder)


def test_empty_sides_are_only_dropped_from_the_training_text(data, raw, caplog):
    write(raw / "train.de.gz", ["", *GERMAN * 10, " ", "\u3000"])
    write(raw / "train.en.gz", ["The.", *ENGLISH * 10, "The.", "The."])
    write(raw / "first.en", [ENGLISH[1], "", ENGLISH[3]])
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    assert lines(corpus.text("train", "de")) == GERMAN * 10
    assert lines(corpus.text("train", "en")) == ENGLISH * 10
    assert lines(corpus.text("test", "en")) == [ENGLISH[1], "", ENGLISH[3]]
    assert re.search(r"train +40 pairs\n +3 dropped: a side was empty\n", summary(corpus))


def test_files_of_a_split_are_concatenated(data, raw):
    text = DESCRIPTION.replace("train: train.{language}", 'train: ["train.{language}", "dev.{language}"]')
    (data / "tiny" / "corpus.yaml").write_text(text, encoding="utf-8")
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    assert lines(corpus.text("train", "de")) == GERMAN * 10 + GERMAN[:2]


def test_a_translation_memory_and_plain_files(data, raw):
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv><tuv xml:lang="de"><seg>{de}</seg></tuv></tu>\n'
        for de, en in [*zip(GERMAN, ENGLISH), ("", "Only English.")]
    )
    (raw / "memory.tmx").write_text(f'<tmx version="1.4"><body>\n{units}</body></tmx>\n', encoding="utf-8")
    text = DESCRIPTION.replace("train: train.{language}", 'train: ["train.{language}", memory.tmx]')
    (data / "tiny" / "corpus.yaml").write_text(text, encoding="utf-8")
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    assert lines(corpus.text("train", "de")) == GERMAN * 11
    assert lines(corpus.text("train", "en")) == ENGLISH * 11
    assert "1 dropped: a side was empty" in summary(corpus)


def test_the_example_in_the_readme(tmp_path):
    """A user's two files with the description in data/README.md."""
    readme = (Path(__file__).resolve().parents[2] / "data" / "README.md").read_text(encoding="utf-8")
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


def test_tokenised_corpora_require_a_reference(data, raw):
    text = DESCRIPTION + "tokenised: true\n"
    (data / "tiny" / "corpus.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="line 11: tokenised: big_test requires a reference"):
        prepare(load_corpus("tiny", data), raw)


def test_the_number_of_references_must_match(data, raw):
    write(raw / "natural.de", GERMAN)
    write(raw / "natural.en", ENGLISH)
    old, new = (
        "big_test: first.{language}",
        "big_test: {file: 'first.{language}', reference: 'natural.{language}'}",
    )
    (data / "tiny" / "corpus.yaml").write_text(DESCRIPTION.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match="big_test of tiny has 3 pairs, but 4 references"):
        prepare(load_corpus("tiny", data), raw)


def test_line_separators_inside_sentences_keep_the_sides_aligned(data, raw):
    write(raw / "first.de", ["Der\u2028Hund.", "Die\x85Katze.", "Das\rKind."])
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw)
    assert lines(corpus.text("test", "de")) == ["Der\u2028Hund.", "Die\x85Katze.", "Das Kind."]
    assert len(lines(corpus.segmented / "test.de")) == 3


def test_a_different_raw_file_is_used_with_a_warning(data, raw, caplog):
    published = f"downloads:\n  dev.de: {{url: 'http://127.0.0.1:9/dev.de', sha256: {'a' * 64}}}\n"
    (data / "tiny" / "corpus.yaml").write_text(DESCRIPTION + published, encoding="utf-8")
    corpus = load_corpus("tiny", data)
    with caplog.at_level(logging.WARNING):
        prepare(corpus, raw)
    assert "dev.de is not the published file" in caplog.text
    assert lines(corpus.text("valid", "de")) == GERMAN[:2]


def test_existing_raw_files_are_not_downloaded(data, raw):
    """With the files in raw/ no network is needed; it is used for missing files."""
    corpus = load_corpus("tiny", data)
    shutil.copytree(raw, corpus.raw)
    prepare(corpus)
    published = f"downloads:\n  dev.de: {{url: 'http://127.0.0.1:9/dev.de', sha256: {'a' * 64}}}\n"
    (data / "tiny" / "corpus.yaml").write_text(DESCRIPTION + published, encoding="utf-8")
    (corpus.raw / "dev.de").unlink()
    corpus = load_corpus("tiny", data)
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
def test_bad_raw_files(data, raw, spoil, complaint):
    spoil(raw)
    corpus = load_corpus("tiny", data)
    with pytest.raises(UserError, match=complaint) as caught:
        prepare(corpus, raw)
    assert "\n" not in str(caught.value)
    assert not stamps.read_stamp(corpus.folder / "text" / "stamp.json")
    assert not list(corpus.folder.rglob("*.part*"))


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ({"vocabulary_size": 100_000}, r"use --vocab-size \d+ or less"),
        ({"vocabulary_size": 0}, "--vocab-size 0 must be positive"),
        ({"vocabulary_size": 3_000_000_000}, "--vocab-size must be at most 2147483647"),
        ({"vocabulary_size": 1 << 20_000}, "--vocab-size must be at most"),
        ({"vocabulary_size": 2**31 - 1}, r"use --vocab-size \d+ or less"),
        ({"workers": 1 << 20_000}, "--workers must be at most 1000"),
        ({"workers": 0}, "--workers 0 must be positive"),
    ],
)
def test_bad_settings(data, raw, named, complaint):
    with pytest.raises(UserError, match=complaint):
        prepare(load_corpus("tiny", data), raw, **named)


def test_a_percent_sign_in_the_name_of_a_corpus(monkeypatch, capsys):
    """argparse would interpret a percent sign in a help text."""
    script = importlib.import_module("user_dir.commands.prepare")
    monkeypatch.setattr(corpora, "known_corpora", lambda: ["50%", "100%s", "%(prog)s"])
    monkeypatch.setattr(sys, "argv", ["prepare.py", "--help"])
    with pytest.raises(SystemExit) as caught:
        script.main()
    assert caught.value.code == 0
    assert "one of: 50%, 100%s, %(prog)s" in " ".join(capsys.readouterr().out.split())


def test_an_invalid_chosen_size_is_ignored(data, raw):
    prepare(load_corpus("tiny", data), raw)
    stamp = data / "tiny" / "spm.json"
    for size in ("50", -1, 2**40, True, [1]):
        record = json.loads(stamp.read_text(encoding="utf-8"))
        record["report"]["chosen_size"] = size
        stamp.write_text(json.dumps(record), encoding="utf-8")
        prepare(load_corpus("tiny", data), raw)
        assert len(lines(data / "tiny" / "spm.vocab")) == 60


def test_raw_must_be_a_folder(data, raw):
    with pytest.raises(UserError, match=r"--raw .*dev\.de is not a folder"):
        prepare(load_corpus("tiny", data), raw / "dev.de")
    with pytest.raises(UserError, match=r"--raw .*nowhere is not a folder"):
        prepare(load_corpus("tiny", data), raw / "nowhere")


@pytest.mark.parametrize("place", ["text", "text/normalised/mine", "bin", "link"])
def test_raw_files_that_preparing_would_replace(data, raw, place):
    """They may be the only copy."""
    corpus = load_corpus("tiny", data)
    folder = corpus.folder / place
    if place == "link":
        (corpus.folder / "text").mkdir()
        folder.symlink_to("text")
    shutil.copytree(raw, folder, dirs_exist_ok=True)
    before = tree(data)
    with pytest.raises(
        UserError, match=rf"--raw .*{place} is in .*; copy the raw files elsewhere, such as to "
    ):
        prepare(corpus, folder)
    assert tree(data) == before
    shutil.copytree(folder, corpus.raw)
    prepare(corpus, corpus.raw)


def test_a_raw_file_that_preparing_would_replace(data, raw):
    """It is in a folder that the description names, or where a link leads."""
    corpus = load_corpus("tiny", data)
    (corpus.folder / "text").mkdir()
    (raw / "dev.de").rename(corpus.folder / "text" / "valid.de")
    (raw / "dev.de").symlink_to(corpus.folder / "text" / "valid.de")
    before = tree(data)
    with pytest.raises(UserError, match=r"the raw file .*raw/dev\.de is in .*text, whose files"):
        prepare(corpus, raw)
    description = DESCRIPTION.replace("dev.", "text/valid.")
    (corpus.folder / "corpus.yaml").write_text(description, encoding="utf-8")
    with pytest.raises(UserError, match=r"the raw file .*text/valid\.de is in .*text, whose files"):
        prepare(load_corpus("tiny", data), corpus.folder)
    assert tree(data / "tiny" / "text") == {
        name.removeprefix("tiny/text/"): digest for name, digest in before.items() if "/text/" in name
    }


def test_text_of_another_corpus_as_raw_files(data, raw):
    prepare(load_corpus("tiny", data), raw)
    (data / "other").mkdir()
    description = re.sub(
        r"(train|dev|first|second)\.", lambda found: OTHER_NAMES[found[1]] + ".", DESCRIPTION
    )
    (data / "other" / "corpus.yaml").write_text(description, encoding="utf-8")
    before = tree(data / "tiny")
    prepare(load_corpus("other", data), data / "tiny" / "text")
    assert tree(data / "tiny") == before
    assert lines(data / "other" / "text" / "valid.de") == lines(data / "tiny" / "text" / "valid.de")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("train.{language}", "train", "line 3: splits: train is 'train', but must have {language} in it"),
        ("train.{language}", "12", "splits: train is 12, but must be a file name"),
        ("licence", "origin: plain\nlicence", "unknown origin 'plain'; choose from parallel_text, "),
    ],
)
def test_a_description_that_does_not_suit_its_origin(data, raw, old, new, complaint):
    (data / "tiny" / "corpus.yaml").write_text(DESCRIPTION.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        prepare(load_corpus("tiny", data), raw)


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
    assert f"scripts/{command}" in _next_command(load_corpus(name))
