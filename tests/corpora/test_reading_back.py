"""Binarised data that differ from the pieces are noticed, with the line."""

import numpy as np
import pytest
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from user_dir.corpora.reading_back import read_back
from user_dir.errors import UserError

LINES = ["▁a b", "▁a ☃ ▁b", "", "b"]
PARTS = ("de",)


def binarised(folder, lines, change=lambda rows: rows):
    """Data as of fairseq-preprocess; returns the arguments of ``read_back``."""
    words = Dictionary()
    for symbol in ("▁a", "▁b", "b", "▁[SEP]"):
        words.add_symbol(symbol)
    rows = [words.encode_line(line, append_eos=True, add_if_not_exist=False) for line in lines]
    builder = MMapIndexedDatasetBuilder(str(folder / "train.de.bin"), np.uint16)
    for row in change(rows):
        builder.add_item(row)
    builder.finalize(str(folder / "train.de.idx"))
    (folder / "train.de").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder / "train.de", words, folder / "train.de"


def test_equal_data_are_counted(tmp_path):
    found = read_back(*binarised(tmp_path, LINES), PARTS)
    assert found == {"de": {"words": 3, "pieces": 6, "unknown": 1, "empty": 1}}


def test_source_and_translation_of_triplets_are_counted_apart(tmp_path):
    lines = ["▁a b ▁[SEP] ▁b", "<unk> ▁[SEP] ▁a ☃ b"]
    found = read_back(*binarised(tmp_path, lines), ("src", "mt"))
    assert found["src"] == {"words": 2, "pieces": 3, "unknown": 1, "empty": 0}
    assert found["mt"] == {"words": 2, "pieces": 4, "unknown": 1, "empty": 0}


@pytest.mark.parametrize(
    ("lines", "change", "word"),
    [
        (["▁a b", "▁a\u00a0▁b"], lambda rows: rows, "line 2"),  # fairseq splits there
        (["▁a b", "▁a </s> b"], lambda rows: rows, "line 2"),
        (["▁a", "b", "▁a <pad>"], lambda rows: rows, "line 3"),
        (["<s>"], lambda rows: rows, "line 1"),
        (LINES, lambda rows: rows[:-1], "line 4"),
        (LINES, lambda rows: rows + rows[:1], "4 lines"),
        (LINES, lambda rows: [rows[0], rows[1], rows[3], rows[2]], "line 3"),
    ],
)
def test_other_data_are_refused_with_the_line(tmp_path, lines, change, word):
    with pytest.raises(UserError, match=word):
        read_back(*binarised(tmp_path, lines, change), PARTS)
