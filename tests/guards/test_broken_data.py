"""fairseq's tasks given binarised data that is broken: one sentence, and no pipe is waited for."""

from __future__ import annotations

import os
import struct
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import IndexedDatasetBuilder, MMapIndexedDatasetBuilder
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import dictionary

from user_dir.corpora.binarised import check_side
from user_dir.errors import UserError

SENTENCES = ([5, 6, 2], [7, 2], [23, 4, 8, 2])


def write(folder, name, sentences=SENTENCES, legacy=False):
    prefix = folder / name
    make = IndexedDatasetBuilder if legacy else MMapIndexedDatasetBuilder
    builder = make(f"{prefix}.bin", **({} if legacy else {"dtype": np.uint16}))
    for sentence in sentences:
        builder.add_item(torch.tensor(sentence, dtype=torch.int32))
    builder.finalize(f"{prefix}.idx")


@pytest.fixture
def folder(tmp_path):
    for language in ("de", "en"):
        dictionary().save(str(tmp_path / f"dict.{language}.txt"))
        for split in ("train", "train1", "valid"):
            write(tmp_path, f"{split}.de-en.{language}")
    return tmp_path


def load(folder, languages=("de", "en"), split="valid", combine=False, impl=None):
    """What every one of fairseq's commands does with data."""
    source, target = languages
    cfg = TranslationConfig(data=str(folder), source_lang=source, target_lang=target)
    cfg.train_subset, cfg.dataset_impl, cfg.required_seq_len_multiple = "train", impl, 1
    cfg.upsample_primary = 1  # fairseq-train's default
    task = TranslationTask.setup_task(cfg)
    task.load_dataset(split, combine=combine)
    return task.dataset(split)


@pytest.mark.parametrize("languages", [("de", "en"), ("en", "de"), (None, None)])
def test_whole_data_is_loaded(folder, languages):
    assert len(load(folder, languages)) == len(load(folder, languages, "train")) == 3
    assert len(load(folder, languages, "train", combine=True)) == 6
    assert load(folder, languages, impl="mmap")[2]["source"].tolist() == [23, 4, 8, 2]


def test_other_data_that_fairseq_reads_is_loaded(folder):
    for name in ("valid.de-en.de", "valid.de-en.en"):
        (folder / f"{name}.bin").unlink(), (folder / f"{name}.idx").unlink()
        write(folder, name, legacy=True)
    assert len(load(folder)) == 3  # of the older format
    for name in ("valid.de-en.en.bin", "valid.de-en.en.idx"):
        (folder / name).unlink()
    assert load(folder).tgt is None  # a source alone, as fairseq-preprocess --only-source makes it
    (folder / "raw.de-en.de").write_text("word1 word2\n")
    (folder / "raw.de-en.en").write_text("word3\n")
    assert len(load(folder, split="raw", impl="raw")) == 1
    write(folder, "valid.align.de-en", ([], [0, 0], []))  # an alignment may be empty, and has no dictionary
    assert len(data_utils.load_indexed_dataset(str(folder / "valid.align.de-en"), None)) == 3


def numbers(path, place, form, value):
    content = bytearray(path.read_bytes())
    struct.pack_into(form, content, place, value)
    path.write_bytes(content)


def replace(make):
    def change(path):
        path.unlink()
        make(path)

    return change


# What is done to a file → what is said, besides its name.
SIZES, PLACES = 26, 26 + 12  # in an index of three sentences
INDEX = {
    "gone": (lambda path: path.unlink(), "there is no"),
    "a pipe": (replace(os.mkfifo), "is a pipe or a device, not a file"),
    "a folder": (replace(os.mkdir), "is a folder, not a file"),
    "a link in a circle": (replace(lambda path: path.symlink_to(path)), "symbolic links"),
    "a link to nothing": (replace(lambda path: path.symlink_to("nothing")), "there is no"),
    "empty": (lambda path: path.write_bytes(b""), "not an index of binarised data"),
    "of another magic": (lambda path: numbers(path, 0, "<Q", 7), "not an index of binarised data"),
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:-5]), "corrupt or truncated"),
    "of another type": (lambda path: path.write_bytes(flipped(path, 17)), "corrupt or truncated"),
    "of 10^18 sentences": (lambda path: numbers(path, 18, "<Q", 10**18), "corrupt or truncated"),
    "with a size below 0": (lambda path: numbers(path, SIZES, "<i", -3), "are not contiguous"),
    "with a size of 2^31": (lambda path: numbers(path, SIZES, "<i", 2**31 - 1), "are not contiguous"),
    "with a place beyond": (
        lambda path: numbers(path, PLACES + 8, "<q", 10**12),
        "are not contiguous",
    ),
    "with a place below 0": (lambda path: numbers(path, PLACES + 8, "<q", -8), "are not contiguous"),
}
TOKENS = {
    **{name: INDEX[name] for name in ("gone", "a pipe", "a folder", "a link to nothing")},
    "empty": (lambda path: path.write_bytes(b""), "has 0 bytes, but 18 according to its index"),
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:-2]), "has 16 bytes, but 18 according"),
    "of other symbols": (
        lambda path: numbers(path, 0, "<H", 24),
        "has the symbol 24, but its dictionary has 24 symbols",
    ),
}
DICTIONARY = {
    **{name: INDEX[name] for name in ("gone", "a pipe", "a link to nothing", "a link in a circle")},
    "a folder": (replace(os.mkdir), "is a folder, not a file"),
    "torn": (lambda path: path.write_bytes(path.read_bytes()[:-2]), "not a fairseq dictionary"),
    "no text": (lambda path: path.write_bytes(b"\xff 1\n"), "not a fairseq dictionary"),
    "a word twice": (lambda path: path.write_bytes(2 * path.read_bytes()), "not a fairseq dictionary"),
}


def flipped(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x62
    return bytes(content)


CASES = [("valid.de-en.de.idx", how, *INDEX[how]) for how in INDEX]
CASES += [("valid.de-en.en.idx", how, *INDEX[how]) for how in ("a pipe", "cut short", "gone")]
CASES += [("valid.de-en.en.bin", how, *TOKENS[how]) for how in TOKENS]
CASES += [("valid.de-en.de.bin", how, *TOKENS[how]) for how in ("a pipe", "cut short", "gone")]
CASES += [("dict.en.txt", how, *DICTIONARY[how]) for how in DICTIONARY]


@pytest.mark.parametrize("name, how, change, message", CASES, ids=[" ".join(case[:2]) for case in CASES])
def test_broken_data_is_refused(folder, name, how, change, message):
    change(folder / name)
    with pytest.raises(UserError) as caught:
        load(folder)
    said = str(caught.value)
    assert message in said and "\n" not in said and "prepare the corpus again" in said
    assert name in said or (message.startswith("has the symbol") and ".bin" in said)


@pytest.mark.parametrize("combine", [False, True])
def test_each_part_of_a_combined_split_is_checked(folder, combine):
    (folder / "train1.de-en.de.bin").write_bytes(b"")
    if combine:
        with pytest.raises(UserError, match=r"train1\.de-en\.de\.bin has 0 bytes"):
            load(folder, split="train", combine=True)
    else:
        assert len(load(folder, split="train")) == 3


def test_a_split_without_a_sentence(folder):
    write(folder, "valid.de-en.de", [])
    with pytest.raises(UserError, match=r"valid\.de-en\.de\.bin is of no sentence"):
        load(folder)


def test_sides_of_unequal_length(folder):
    write(folder, "valid.de-en.en", SENTENCES[:2])
    with pytest.raises(UserError, match=r"the split valid in .* is broken: .*same number of examples"):
        load(folder)


def test_what_is_not_there_is_named(folder, tmp_path):
    with pytest.raises(UserError, match="there is no split exam of de-en in "):
        load(folder, split="exam")
    with pytest.raises(UserError, match=r"there is no dictionary .*dict\.fr\.txt"):
        load(folder, ("de", "fr"))
    with pytest.raises(UserError, match=r"cannot read the folder .*nowhere of binarised data: No such file"):
        load(folder / "nowhere", (None, None))
    with pytest.raises(UserError, match=r"cannot read the folder .*: Not a directory"):
        load(folder / "dict.de.txt", (None, None))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="there is no binarised data in "):
        load(tmp_path / "empty", (None, None))


def test_language_models_data_too(tmp_path):
    dictionary().save(str(tmp_path / "dict.txt"))
    write(tmp_path, "train")

    def load_text(split):
        cfg = LanguageModelingConfig(data=str(tmp_path))
        task = LanguageModelingTask.setup_task(
            Namespace(**{**vars(cfg), "tokens_per_sample": 8, "dataset_impl": None, "use_plasma_view": False})
        )
        task.load_dataset(split)
        return task.dataset(split)

    assert len(load_text("train"))
    with pytest.raises(UserError, match="Dataset not found: valid"):
        load_text("valid")
    (tmp_path / "train.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"train\.bin has 0 bytes"):
        load_text("train")


@pytest.mark.skipif(os.geteuid() != 0, reason="to lay down root's rights one must have them")
def test_files_that_may_not_be_read(folder):
    for path in (folder, *folder.parents):
        if path.stat().st_uid == 0 and path.stat().st_mode & 0o5 != 0o5:
            path.chmod(0o755)
    for name in ("valid.de-en.de.idx", "valid.de-en.en.bin", "dict.en.txt"):
        (folder / name).chmod(0)
        os.seteuid(65534)
        try:
            with pytest.raises(UserError, match=f"cannot read .*{name}: Permission denied"):
                load(folder)
        finally:
            os.seteuid(0)
            (folder / name).chmod(0o644)
    assert len(load(folder)) == 3


def test_a_large_index_takes_no_memory(folder):
    """In pieces: a place that is wrong is found in the last as in the first."""
    from user_dir.corpora import binarised

    write(folder, "large.de-en.de", [[5, 2]] * 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarised, "PIECE", 7)
        assert check_side(folder / "large.de-en.de", 24) == 1000
        path = folder / "large.de-en.de.idx"
        numbers(path, path.stat().st_size - 8, "<q", 3)
        with pytest.raises(UserError, match="are not contiguous"):
            check_side(folder / "large.de-en.de", 24)
