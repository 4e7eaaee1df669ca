"""Which pieces come of a corpus, and what becomes of the stages made with others."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import DESCRIPTION, ENGLISH, GERMAN, write

from user_dir.corpora import load_corpus, stamps
from user_dir.corpora import preparation as module
from user_dir.corpora.preparation import prepare
from user_dir.errors import UserError

pytestmark = pytest.mark.usefixtures("no_fairseq")
ROOT = Path(__file__).resolve().parents[2]
PREPARE = """
import shutil, sys
from pathlib import Path
from user_dir.corpora import load_corpus, preparation
def only_the_dictionary(parts, subsets, folder, dictionary, target, workers):
    shutil.copy(dictionary, target / "dict.de.txt")
    return {}
preparation.preprocess = only_the_dictionary
preparation.prepare(load_corpus("tiny", sys.argv[1]), Path(sys.argv[2]), workers=int(sys.argv[3]))
"""


@pytest.fixture
def sampled(data, raw):
    """A corpus of which a fifth of the sentences is learned from, in words that differ."""
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefgh", k=6)) for _ in range(3000)]
    for language in ("de", "en"):
        write(raw / f"train.{language}.gz", [" ".join(draw.choices(words, k=5)) for _ in range(500)])
    (data / "tiny" / "corpus.yaml").write_text(DESCRIPTION.replace("size: 60", "size: 90\nlearn_from: 200"))
    return data


def digests(folder: Path) -> dict[str, str]:
    files = [folder / "spm.model", folder / "spm.vocab", folder / "bin" / "dict.de.txt"]
    files += sorted((folder / "text" / "spm").glob("*.*"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_sampled_vocabulary_is_the_same_in_every_process(sampled, raw, tmp_path):
    found = []
    for seed, workers in (("1", "1"), ("2", "3")):
        place = tmp_path / f"of process {seed}"
        (place / "tiny").mkdir(parents=True)
        (place / "tiny" / "corpus.yaml").write_bytes((sampled / "tiny" / "corpus.yaml").read_bytes())
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": workers}
        command = [sys.executable, "-c", PREPARE, place, raw, workers]
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
        found.append(digests(place / "tiny"))
    assert found[0] == found[1] and len(found[0]) > 10


def test_too_large_a_vocabulary_is_told_which_would_suit(sampled, raw):
    with pytest.raises(UserError, match=r"use --vocab-size \d+ or less, such as 1200 for its 500 pairs$"):
        prepare(load_corpus("tiny", sampled), raw, 32_000, workers=1)


def test_the_sample_is_of_the_whole_text(sampled, raw):
    """Both languages are drawn from; all sentences give other pieces."""
    corpus = load_corpus("tiny", sampled)
    prepare(corpus, raw, workers=1)
    report = stamps.read_stamp(corpus.folder / "spm.json")["report"]
    assert (report["sentences"], report["learned_from"]) == (1000, 200)
    pieces = corpus.spm_model.with_suffix(".vocab").read_text()
    (sampled / "tiny" / "corpus.yaml").write_text(DESCRIPTION.replace("size: 60", "size: 90"))
    prepare(load_corpus("tiny", sampled), raw, workers=1)
    assert corpus.spm_model.with_suffix(".vocab").read_text() != pieces


def test_other_pieces_than_before_are_told_of_and_nothing_of_the_old_ones_stays(
    data, raw, monkeypatch, caplog
):
    """As of a sample that an earlier version drew: the inputs are the same, the pieces are not."""
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw, workers=1)
    right = corpus.spm_model.with_suffix(".vocab").read_text()
    caplog.clear()
    prepare(corpus, raw, workers=1, force=True)
    assert "no longer fit" not in caplog.text
    corpus.spm_model.with_suffix(".vocab").write_text(right.replace("\t", "\t-"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "make_pieces", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        prepare(corpus, raw, workers=1, force=True)
    assert "no longer fit" in caplog.text
    assert not (corpus.segmented / "stamp.json").exists() and not (corpus.bin / "stamp.json").exists()
    prepare(corpus, raw, workers=1)
    assert corpus.require_prepared() and corpus.spm_model.with_suffix(".vocab").read_text() == right


def test_a_corpus_with_the_pieces_of_another_follows_it(data, raw):
    (data / "second").mkdir()
    described = DESCRIPTION.replace("vocabulary_size: 60", "pieces_of: tiny")
    (data / "second" / "corpus.yaml").write_text(described)
    first, second = load_corpus("tiny", data), load_corpus("second", data)
    prepare(first, raw, workers=1)
    prepare(second, raw, workers=1)
    first.spm_model.write_bytes(second.spm_model.read_bytes() + b"\x82\x01\x00")  # as relearned
    prepare(second, raw, workers=1)
    assert second.spm_model.read_bytes() == first.spm_model.read_bytes()


def test_every_line_counts(data, raw):
    """With coverage 1.0, each character of the text has a piece, wherever it stands."""
    odd = [
        "ä" * 5000 + " ñ",  # a word too long for sentencepiece
        "hund " * 2000 + "ŵ",
        "ž" + " katze" * 2000,
        "ő \u2585",  # sentencepiece's own mark
        "\tů\t",
        "ķ<s>q</s>ļ",
        "京都" * 3000 + "ば",
    ]
    write(raw / "train.de.gz", [*GERMAN * 5, *odd])
    write(raw / "train.en.gz", [*ENGLISH * 5, *["x"] * len(odd)])
    (data / "tiny" / "corpus.yaml").write_text(DESCRIPTION.replace("size: 60", "size: 70"))
    corpus = load_corpus("tiny", data)
    prepare(corpus, raw, workers=1)
    pieces = "".join(corpus.spm_model.with_suffix(".vocab").read_text(encoding="utf-8"))
    assert not set("äñŵžőůķqļ京都ば/") - set(pieces)
