"""Sentences through scripts/translate.py, as evaluate.py translates them in a test set."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from commands import (
    evaluated_as_by_fairseq,
    lines,
    of,
    page_data,
    prepared,
    randomised,
    refused,
    script,
    train,
)
from forks import ROOT, environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(small, once):
    """A checkpoint of random weights, so that every sentence has a translation of its own."""

    def fill(folder):
        log = ["--alpha-log", folder / "alpha.jsonl", "--alpha-log-interval", "1"]
        train(small, folder, "--max-update", "2", "--disable-validation", *log)
        randomised(folder / "checkpoint_last.pt", folder / "random.pt", seed=1, scale=1 / 3)

    return once("random_model", fill) / "random.pt"


@pytest.fixture(scope="module")
def command(model) -> list:
    """What every command is given. The checkpoint names its corpus by an absolute path."""
    return ["--path", model, "--beam", "2"]


@pytest.fixture(scope="module")
def source(small) -> list[str]:
    """The sentences of the test set."""
    return lines(small / "text" / "test.de")


@pytest.fixture(scope="module")
def evaluated(small, model, once) -> list[str]:
    """Their hypotheses by evaluate.py."""
    flags = [*of(model, small), "--beam", "2"]
    folder = once("evaluated", lambda folder: script("evaluate", *flags, "--output", folder))
    translations = lines(folder / "exam.en")
    assert len(translations) == 11 and len(set(translations)) > 5
    return translations


def test_a_test_set_is_translated_as_evaluate_does(command, small, evaluated, tmp_path):
    file, output = small / "text" / "test.de", tmp_path / "out.en"
    done = script("translate", *command, "--input", file, "--output", output)
    assert lines(output) == evaluated
    assert done.stdout == ""


def test_blank_and_long_lines_as_evaluate_and_generate_treat_them(model, small, tmp_path):
    """Sources that are empty, of white space and of a character that pieces drop; at most 4 pieces."""
    files = {path.name: lines(path) for path in (small.parent.parent / "raw").iterdir()}
    for language in ("de", "en"):
        exam = files[f"exam.{language}"]
        exam[1], exam[4], exam[9] = "", " \t ", "\u200b"
    mine = prepared(tmp_path, files, vocabulary_size=200)
    flags = [*of(model, mine), "--beam", "2", "--max-len-b", "4"]
    said = script("evaluate", *flags, "--output", tmp_path).stdout
    scores, evaluated = evaluated_as_by_fairseq(tmp_path, mine, "exam"), lines(tmp_path / "exam.en")
    assert [i for i, line in enumerate(evaluated, 1) if not line] == scores["blank_lines"] == [2, 5, 10]
    assert "lines 2, 5 and 10" in said
    cut = scores["unfinished_lines"]
    assert f"limit of 4 pieces, and may lack their end: {len(cut)} " in said
    assert 0 < len(cut) <= 8

    done = script("translate", *flags, "--input", mine / "text" / "test.de")
    assert done.stdout.split("\n")[:-1] == evaluated
    assert f"warning: {len(cut)} translations" in done.stderr


def test_from_arguments_and_stdin_with_empty_lines(command, source, evaluated):
    done = script("translate", *command, *source[:3])
    assert done.stdout.split("\n")[:-1] == evaluated[:3]
    text = f"{source[0]}\n\n \t\n{source[1]}"  # no newline at the end
    done = script("translate", *command, stdin=text)
    assert done.stdout.split("\n") == [evaluated[0], "", "", evaluated[1], ""]


def test_alignments_beside_translations(command, source, evaluated):
    """By what validation says; by a given head; in columns behind those of --nbest."""
    done = script("translate", *command, "--alignment", *source[:3], "")
    texts, alignments = zip(*(line.split("\t") for line in done.stdout.split("\n")[:-1]))
    assert list(texts) == [*evaluated[:3], ""] and alignments[3] == "" and any(alignments)
    for text, sentence, links in zip(texts, source, alignments):
        for link in links.split():
            i, j = map(int, link.split("-"))
            assert i < len(sentence.split()) and j < len(text.split())
    (choice,) = re.findall(r"aligned by (layer\d+(?:-head\d+)?@\w+|all@\w+)\n", done.stderr)
    other = "0:1@input" if choice != "layer0-head1@input" else "0:0@input"
    again = script("translate", *command, "--alignment", "--alignment-head", other, *source[:3], "").stdout
    assert again != done.stdout
    said = script("translate", *command, "--alignment-head", "0", "--nbest", "2", source[0]).stdout
    assert [len(line.split("\t")) for line in said.splitlines()] == [4, 4]


def test_eight_bit_integers(command, source, stock):
    """They change the scores, and are refused where they are not possible."""
    nbest = [*command, "--nbest", "1", *source[:3]]
    exact, rounded = (script("translate", *nbest, *flags).stdout for flags in ((), ("--int8",)))
    assert len(rounded.splitlines()) == 3 and rounded != exact
    of_stock = script("translate", "--path", stock, "--int8", source[0], check=False)
    refused(of_stock, "--int8", "TransformerModel")


@pytest.mark.nightly
def test_a_pipe_is_answered_line_by_line(command, source, evaluated):
    words = [sys.executable, ROOT / "scripts" / "translate.py", *command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(list(map(str, words)), env=environment(), encoding="utf-8", **pipes) as process:
        for line, expected in zip(source[:2], evaluated):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == expected + "\n"
        process.stdin.close()
        assert process.wait(60) == 0, process.stderr.read()


def test_report_draws_the_heads_on_these_sentences(command, source, evaluated, tmp_path):
    page = tmp_path / "heads.html"
    done = script("translate", *command, "--report", page, source[0], "", source[1])
    assert done.stdout.split("\n")[:-1] == [evaluated[0], "", evaluated[1]]
    report = page_data(page)
    assert [sentence["text"] for sentence in report["maps"]["sentences"]] == source[:2]
    targets = ["".join(sentence["target"]) for sentence in report["maps"]["sentences"]]
    targets = [text.replace("▁", " ").replace("</s>", "").strip() for text in targets]
    assert targets == evaluated[:2]
    assert report["about"]["target"] == "translation"
    assert len(report["heads"]) == 24 and report["trajectories"]["updates"] == [0, 1, 2]


def test_what_cannot_be_translated_is_told_in_a_sentence(command, data, tmp_path):
    def refuse(*flags, **options):
        return script("translate", *command, *flags, check=False, **options)

    refused(refuse(stdin="Gut.\n" + "Hund " * 1100 + "\n"), "stdin, line 2", "tokens", "1024")
    refused(refuse("--corpus", "multi30k", "--data", data, "Gut."), "multi30k is not prepared")
    refused(refuse("--report", tmp_path / "heads.txt", "Gut."), ".html")
    refused(refuse("--output", "/dev/full", "Gut."), "cannot write /dev/full", "No space left")
