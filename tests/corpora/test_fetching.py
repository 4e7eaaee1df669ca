"""From URLs to prepared text: a corpus of archives, downloaded from a local server."""

import hashlib
import logging
import multiprocessing
import os
import signal

import pytest
import releases
import yaml
from server import serving
from tiny import contents

from user_dir.corpora import archives, load_corpus
from user_dir.corpora.corpus import DATA
from user_dir.corpora.preparation import prepare

NAME = "iwslt17-de-en"  # its archives are in folders, and two have the same base name


pytestmark = pytest.mark.usefixtures("no_fairseq")


@pytest.fixture
def published(tmp_path):
    """The archives of a miniature release by name."""
    raw = tmp_path / "release"
    raw.mkdir()
    releases.RELEASES[NAME](raw)
    return {str(path.relative_to(raw)): path.read_bytes() for path in raw.rglob("*.tgz")}


def described(tmp_path, published, *mirrors) -> None:
    """The corpus with other URLs: ``MIRROR/NAME`` for each mirror."""
    description = yaml.safe_load((DATA / NAME / "corpus.yaml").read_text(encoding="utf-8"))
    description["downloads"] = {
        name: {
            "url": [f"{mirror}/{name}" for mirror in mirrors],
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in published.items()
    }
    folder = tmp_path / "data" / NAME
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.yaml").write_text(yaml.safe_dump(description), encoding="utf-8")


def prepared(tmp_path):
    corpus = load_corpus(NAME, tmp_path / "data")
    prepare(corpus, vocabulary_size=releases.vocabulary_size(NAME), workers=1)
    return corpus


def test_through_bad_mirrors_to_text(tmp_path, published, caplog):
    requests = []
    with serving(published, requests) as url, caplog.at_level(logging.WARNING):
        described(tmp_path, published, f"{url}/missing", f"{url}/wrong", f"{url}/half", f"{url}/moved")
        corpus = prepared(tmp_path)
        asked = len(requests)
        prepared(tmp_path)
        assert len(requests) == asked  # existing files are not downloaded again
    assert {
        str(path.relative_to(corpus.raw)): path.read_bytes() for path in corpus.raw.rglob("*.*z")
    } == published
    assert not list(corpus.folder.rglob("*.part*"))
    assert "is not the published file" not in caplog.text
    resumed = {path: begin for path, begin in requests if path.startswith("/good/") and begin}
    assert resumed == {f"/good/{name}": f"bytes={len(content) // 2}-" for name, content in published.items()}


@pytest.mark.parametrize("count", [1, 8])
def test_a_run_killed_while_extracting_is_resumed(tmp_path, published, monkeypatch, count):
    raw = tmp_path / "release"
    whole = load_corpus(NAME, tmp_path / "undisturbed")
    prepare(whole, raw, releases.vocabulary_size(NAME), workers=1)
    corpus = load_corpus(NAME, tmp_path / "data")
    calls = []

    def copy_then_die(*arguments, copy=archives._copy):
        copy(*arguments)
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(archives, "_copy", copy_then_die)
        child = multiprocessing.get_context("fork").Process(target=prepare, args=(corpus, raw))
        child.start()
        child.join(600)
    assert child.exitcode == -signal.SIGKILL
    prepare(corpus, raw, releases.vocabulary_size(NAME), workers=1)
    assert contents(corpus.folder) == contents(whole.folder)
