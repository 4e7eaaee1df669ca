"""Sentences longer than the model's limit, in every command: refused, left out and counted, or cut."""

from __future__ import annotations

import json

import pytest
from commands import (
    PLUGIN,
    fairseq,
    lines,
    of,
    refused,
    script,
    train,
    translated,
)

pytestmark = pytest.mark.slow

LIMIT = 30  # of either side; more than half of the sentences fit
NARROW = ["--max-source-positions", str(LIMIT), "--max-target-positions", str(LIMIT), "--max-update", "2"]
SKIP = "--skip-invalid-size-inputs-valid-test"


def lengths(corpus, subset: str) -> list[tuple[int, int]]:
    """Tokens of each pair, ``</s>`` included, by the pieces that were binarised."""
    sides = [lines(corpus / "text" / "spm" / f"{subset}.{language}") for language in ("de", "en")]
    return [tuple(len(line.split()) + 1 for line in pair) for pair in zip(*sides)]


def long_lines(corpus, subset: str) -> list[int]:
    pairs = enumerate(lengths(corpus, subset), 1)
    return [line for line, sizes in pairs if max(sizes) > LIMIT]


@pytest.fixture(scope="session")
def narrow(small, once):
    """A model of few positions, and what its training said."""

    def fill(folder):
        done = train(small, folder, *NARROW, SKIP)
        (folder / "output").write_text(done.stdout + done.stderr)

    return once("narrow", fill) / "checkpoint_last.pt"


def test_training_counts_what_it_leaves_out(small, narrow):
    output = (narrow.parent / "output").read_text()
    for subset, word in (("train", "train"), ("valid", "valid")):
        long, number = long_lines(small, subset), len(lengths(small, subset))
        assert 0 < len(long) < number / 2
        (told,) = {
            line.split(" | ")[-1]
            for line in output.splitlines()
            if f" of {word} is longer" in line or f" of {word} are longer" in line
        }
        assert f"line{'s' * (len(long) > 1)} {long[0]}" in told
        assert told.endswith(f"left out, {len(long)} of {number}")


def test_training_checks_validation_data_first(small, tmp_path):
    line = long_lines(small, "valid")[0]
    words = f"line {line} ", "of valid ", f"longer than {LIMIT} source", SKIP
    refused(train(small, tmp_path / "a", *NARROW, check=False), *words)
    assert not list((tmp_path / "a").iterdir())


def test_fairseqs_commands_name_the_lines(small, narrow):
    data = [small / "bin", *PLUGIN, "--path", narrow]
    long = long_lines(small, "test")
    done = fairseq("generate", *data, check=False)
    refused(done, f"line {long[0]} ", "of test ", f"{LIMIT} target", SKIP, "--truncate-source")
    done = fairseq("generate", *data, SKIP, "--beam", "1", "--max-len-b", "8")
    kept = set(range(len(lengths(small, "test")))) - {line - 1 for line in long}
    assert translated(done.stdout).keys() == kept
    assert f"left out, {len(long)} of {len(lengths(small, 'test'))}" in done.stdout + done.stderr
    done = fairseq("interactive", *data, stdin="▁der " * 40 + "\n", check=False)
    refused(done, "a sentence of the input has 41 source tokens")


def evaluation(small, narrow, output, *flags, **options):
    arguments = [*of(narrow, small), "--beam", "1", "--max-len-b", "8", "--output", output]
    return script("evaluate", *arguments, *flags, **options)


def test_evaluate_leaves_out_what_is_too_long(small, narrow, tmp_path):
    long = long_lines(small, "test")
    assert 1 < len(long) < 6, "few enough that an error message lists all"
    both = ["--subset", "valid", "--subset", "exam"]
    done = evaluation(small, narrow, tmp_path / "none", *both, check=False)
    refused(done, "--skip-long")
    assert not (tmp_path / "none").exists()

    output = tmp_path / "skipped"
    done = evaluation(small, narrow, output, "--skip-long")
    scores = json.loads((output / "exam.json").read_text())
    sentences = len(lengths(small, "test"))
    assert scores["left_out_lines"] == long and scores["sentences"] == sentences - len(long)
    assert f"left out, as longer than the model's limit: {len(long)} (line" in done.stdout
    translations = lines(output / "exam.en")
    assert len(translations) == sentences and not any(translations[number - 1] for number in long)
    systems = [word for name in "ab" for word in ("--system", name, output / "exam.json")]
    refused(script("compare", *systems, check=False), "--skip-long")
