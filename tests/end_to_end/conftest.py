"""A small prepared corpus and models trained on it: created once per run, not modified by tests."""

from pathlib import Path

import pytest
from commands import lines, prepared, script, train


@pytest.fixture(scope="session")
def data(once) -> Path:
    """A data folder with the prepared toy corpus, by night by processes of their own."""
    return once("data", lambda folder: script("prepare", "toy", "--data", folder, anew="nightly"))


@pytest.fixture(scope="session")
def corpus(data) -> Path:
    return data / "toy"


@pytest.fixture(scope="session")
def small(corpus, once) -> Path:
    """Another corpus, ``mine``, with its own YAML: the first 600 toy pairs; 11 test sentences."""

    def prepare(folder):
        files = {}
        for language in ("de", "en"):
            text = lines(corpus / "text" / f"train.{language}")
            for split, first, last in (("train", 0, 600), ("valid", 600, 613), ("exam", 613, 624)):
                files[f"{split}.{language}"] = text[first:last]
        prepared(folder, files, vocabulary_size=200)

    return once("small", prepare) / "data" / "mine"


@pytest.fixture(scope="session")
def trained(corpus, once) -> Path:
    """A folder of checkpoints of our model, from two epochs of 12 updates, validated by BLEU."""
    bleu = ["--eval-bleu", "--eval-bleu-remove-bpe", "sentencepiece"]
    bleu += ["--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--best-checkpoint-metric", "bleu"]
    flags = ["--max-update", "12", "--save-interval-updates", "6", "--max-valid-steps", "1"]

    def fill(folder):
        log = ["--alpha-log", folder / "alpha.jsonl", "--alpha-log-interval", "4"]
        train(corpus, folder, *flags, *bleu, *log)

    return once("trained", fill)


@pytest.fixture(scope="session")
def stock(corpus, once) -> Path:
    """A checkpoint of the stock fairseq transformer."""
    flags = ["--max-update", "12", "--disable-validation"]
    folder = once("stock", lambda folder: train(corpus, folder, *flags, arch="transformer"))
    return folder / "checkpoint_last.pt"
