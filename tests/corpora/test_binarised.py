"""Binarised data that is corrupt, truncated or of another kind."""

from __future__ import annotations

import struct

import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset
from helpers import binarise, dictionary

from user_dir.corpora.binarised import check_split, read_dictionary
from user_dir.errors import UserError

PAIR = ("de", "en")
SENTENCES = ([5, 6, 2], [7, 2], [23, 4, 8, 2])


@pytest.fixture
def folder(tmp_path):
    for language in PAIR:
        dictionary().save(str(tmp_path / f"dict.{language}.txt"))
        write(tmp_path, language, SENTENCES)
    return tmp_path


def write(folder, language, sentences, subset="test"):
    """Write data as fairseq-preprocess does."""
    prefix = folder / f"{subset}.de-en.{language}"
    binarise(prefix, sentences)
    return prefix


@pytest.mark.parametrize("languages", [PAIR, PAIR[::-1]])
def test_complete_data_is_accepted(folder, languages):
    check_split(folder, "test", languages)
    assert len(MMapIndexedDataset(str(folder / "test.de-en.de"))) == 3


def test_data_without_sentences_is_accepted(folder):
    for language in PAIR:
        write(folder, language, [], "empty")
    check_split(folder, "empty", PAIR)


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


BROKEN = {
    "test.de-en.en.bin": {
        "cut short": (lambda all: all[:-1], "bytes, but"),
        "too long": (lambda all: all + b"\0", "bytes, but"),
        "empty": (lambda all: b"", "bytes, but"),
        "other symbols": (
            lambda all: struct.pack("<H", 24) + all[2:],
            "has the symbol 24, but its dictionary has 24",
        ),
        "gone": (None, "there is no"),
    },
    "test.de-en.de.idx": {
        "cut short": (lambda all: all[:-3], "is corrupt or truncated"),
        "cut in its header": (lambda all: all[:12], "not an index of binarised data"),
        "empty": (lambda all: b"", "not an index of binarised data"),
        "other magic": (lambda all: b"X" + all[1:], "not an index of binarised data"),
        "other type": (lambda all: all[:17] + b"\x63" + all[18:], "is corrupt or truncated"),
        "other count": (lambda all: flipped(all, 18), "is corrupt or truncated"),
        "other size": (lambda all: flipped(all, 26), "are not contiguous"),
        "other place": (lambda all: flipped(all, len(all) - 8), "are not contiguous"),
    },
    "dict.en.txt": {
        "no count": (lambda all: b"word0\n", "not a fairseq dictionary"),
        "no number": (lambda all: b"word0 many\n", "not a fairseq dictionary"),
        "a word twice": (lambda all: all + all, "not a fairseq dictionary"),
        "no UTF-8": (lambda all: b"\xff 1\n", "not a fairseq dictionary"),
        "another size": (lambda all: b"word0 1\n", "has the symbol 23, but its dictionary has 5"),
        "gone": (None, "no dictionary"),
    },
}


@pytest.mark.parametrize("name, how", [(name, how) for name, each in BROKEN.items() for how in each])
def test_corrupt_data_is_refused(folder, name, how):
    change, message = BROKEN[name][how]
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(content))
    with pytest.raises(UserError, match=message) as caught:
        check_split(folder, "test", PAIR)
    assert f".{name.split(chr(46))[-2]}." in str(caught.value)  # the message names the side
    assert "prepare the corpus again" in str(caught.value)


def test_sides_of_unequal_length(folder):
    write(folder, "en", SENTENCES[:2])
    with pytest.raises(UserError, match="3 sentences of test in de, but 2 in en"):
        check_split(folder, "test", PAIR)


def test_a_missing_split(folder):
    with pytest.raises(UserError, match=r"there is no .*valid\.de-en\.de\.idx"):
        check_split(folder, "valid", PAIR)
    with pytest.raises(UserError, match="no dictionary"):
        read_dictionary(folder, "fr")
