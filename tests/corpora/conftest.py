"""The tiny corpus, in a separate folder for each test."""

import pytest
from tiny import DESCRIPTION, ENGLISH, GERMAN, write

from user_dir.corpora import load_corpus


@pytest.fixture
def data(tmp_path):
    """A data folder with the corpus ``tiny`` and, next to it, ``raw``, a folder of its raw files."""
    folder = tmp_path / "data"
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "corpus.yaml").write_text(DESCRIPTION, encoding="utf-8")
    raw = tmp_path / "raw"
    raw.mkdir()
    for language, lines in (("de", GERMAN), ("en", ENGLISH)):
        write(raw / f"train.{language}.gz", lines * 10)
        write(raw / f"dev.{language}", lines[:2])
        write(raw / f"first.{language}", lines[1:])
        write(raw / f"second.{language}", lines[2:])
    return folder


@pytest.fixture
def raw(data):
    return data.parent / "raw"


@pytest.fixture
def corpus(data):
    return load_corpus("tiny", data)
