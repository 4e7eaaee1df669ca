"""A small prepared corpus, and models trained on it."""

from pathlib import Path

import pytest
from commands import script, train


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """A data folder with the toy corpus prepared in it."""
    folder = tmp_path_factory.mktemp("data")
    script("prepare", "toy", "--data", folder)
    return folder


@pytest.fixture(scope="session")
def corpus(data) -> Path:
    return data / "toy"


@pytest.fixture(scope="session")
def small(corpus, tmp_path_factory) -> Path:
    """Another corpus of its own YAML, ``mine``: the first 600 pairs of the toy corpus; 11 test sentences."""
    folder = tmp_path_factory.mktemp("small")
    raw, mine = folder / "raw", folder / "data" / "mine"
    raw.mkdir()
    mine.mkdir(parents=True)
    for language in ("de", "en"):
        lines = (corpus / "text" / f"train.{language}").read_text().split("\n")
        (raw / f"train.{language}").write_text("\n".join(lines[:600]) + "\n")
        (raw / f"dev.{language}").write_text("\n".join(lines[600:613]) + "\n")
        (raw / f"exam.{language}").write_text("\n".join(lines[613:624]) + "\n")
    splits = "{train: 'train.{language}', valid: 'dev.{language}', exam: 'exam.{language}'}"
    (mine / "corpus.yaml").write_text(
        f"title: mine\nlanguages: [de, en]\nsplits: {splits}\nvocabulary_size: 200\n"
    )
    script("prepare", "mine", "--raw", raw, "--data", mine.parent)
    return mine


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory) -> Path:
    """A folder of checkpoints of our model, of two epochs of 12 updates, validated by BLEU."""
    folder = tmp_path_factory.mktemp("trained")
    bleu = ["--eval-bleu", "--eval-bleu-remove-bpe", "sentencepiece"]
    bleu += ["--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--best-checkpoint-metric", "bleu"]
    flags = ["--max-update", "12", "--save-interval-updates", "6", "--max-valid-steps", "1"]
    train(corpus, folder, *flags, *bleu, "--alpha-log", folder / "alpha.jsonl", "--alpha-log-interval", "4")
    return folder


@pytest.fixture(scope="session")
def stock(corpus, tmp_path_factory) -> Path:
    """A checkpoint of fairseq's own transformer."""
    folder = tmp_path_factory.mktemp("stock")
    train(corpus, folder, "--max-update", "12", "--disable-validation", arch="transformer")
    return folder / "checkpoint_last.pt"
