"""fairseq's tasks given binarised data that is broken: one sentence, and no pipe is waited for.

What else may be wrong in a file is in tests/corpora/test_binarised.py.
"""

import os
import struct
from argparse import Namespace

import pytest
import torch
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import IndexedDatasetBuilder
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import binarise, dictionary

from user_dir.corpora import binarised
from user_dir.errors import UserError

SENTENCES = ([5, 6, 2], [7, 2], [23, 4, 8, 2])


@pytest.fixture
def folder(tmp_path):
    for language in ("de", "en"):
        dictionary().save(str(tmp_path / f"dict.{language}.txt"))
        for split in ("train", "train1", "valid"):
            binarise(tmp_path / f"{split}.de-en.{language}", SENTENCES)
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
        builder = IndexedDatasetBuilder(f"{folder / name}.bin")  # of the older format
        for sentence in SENTENCES:
            builder.add_item(torch.tensor(sentence, dtype=torch.int32))
        builder.finalize(f"{folder / name}.idx")
    assert len(load(folder)) == 3
    for name in ("valid.de-en.en.bin", "valid.de-en.en.idx"):
        (folder / name).unlink()
    assert load(folder).tgt is None  # a source alone, as fairseq-preprocess --only-source makes it
    (folder / "raw.de-en.de").write_text("word1 word2\n")
    (folder / "raw.de-en.en").write_text("word3\n")
    assert len(load(folder, split="raw", impl="raw")) == 1
    binarise(folder / "valid.align.de-en", ([], [0, 0], []))  # an alignment may be empty; no dictionary
    assert len(data_utils.load_indexed_dataset(str(folder / "valid.align.de-en"), None)) == 3


def numbers(path, place, form, value):
    content = bytearray(path.read_bytes())
    struct.pack_into(form, content, place, value)
    path.write_bytes(content)


# What is done to a file, which is no longer there → what is said, besides its name.
REPLACED = {
    "gone": (lambda path: None, "there is no"),
    "a pipe": (os.mkfifo, "is a pipe or a device, not a file"),
    "a folder": (os.mkdir, "is a folder, not a file"),
    "a link in a circle": (lambda path: path.symlink_to(path), "symbolic links"),
    "a link to nothing": (lambda path: path.symlink_to("nothing"), "there is no"),
}
INDEX, TOKENS, WORDS = "valid.de-en.de.idx", "valid.de-en.en.bin", "dict.en.txt"
CASES = [(name, how) for name in (INDEX, TOKENS, WORDS) for how in REPLACED]
CASES += [("valid.de-en.en.idx", how) for how in ("gone", "a pipe")]
CASES += [("valid.de-en.de.bin", how) for how in ("gone", "a pipe")]


def said(folder) -> str:
    with pytest.raises(UserError) as caught:
        load(folder)
    message = str(caught.value)
    assert "\n" not in message and "prepare the corpus again" in message
    return message


@pytest.mark.parametrize(("name", "how"), [case for case in CASES if case != (TOKENS, "a link in a circle")])
def test_what_is_no_file_is_refused(folder, name, how):
    make, message = REPLACED[how]
    (folder / name).unlink()
    make(folder / name)
    told = said(folder)
    assert message in told and name in told


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (INDEX, lambda path: os.truncate(path, path.stat().st_size - 5), "corrupt or truncated"),
        (INDEX, lambda path: numbers(path, 18, "<Q", 10**18), "corrupt or truncated"),
        (TOKENS, lambda path: os.truncate(path, 16), "has 16 bytes, but 18 according"),
        (TOKENS, lambda path: numbers(path, 0, "<H", 24), "en.bin has the symbol 24, but its dictionary"),
        (WORDS, lambda path: os.truncate(path, path.stat().st_size - 2), "not a fairseq dictionary"),
    ],
)
def test_broken_data_is_refused(folder, name, change, message):
    change(folder / name)
    assert message in said(folder)


@pytest.mark.parametrize("combine", [False, True])
def test_each_part_of_a_combined_split_is_checked(folder, combine):
    (folder / "train1.de-en.de.bin").write_bytes(b"")
    if combine:
        with pytest.raises(UserError, match=r"train1\.de-en\.de\.bin has 0 bytes"):
            load(folder, split="train", combine=True)
    else:
        assert len(load(folder, split="train")) == 3


def test_a_split_without_a_sentence_and_sides_of_unequal_length(folder):
    binarise(folder / "valid.de-en.de", [])
    with pytest.raises(UserError, match=r"valid\.de-en\.de\.bin is of no sentence"):
        load(folder)
    binarise(folder / "valid.de-en.de", SENTENCES[:2])
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
    binarise(tmp_path / "train", SENTENCES)

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
    for name in (INDEX, TOKENS, WORDS):
        (folder / name).chmod(0)
        os.seteuid(65534)
        try:
            with pytest.raises(UserError, match=f"cannot read .*{name}: Permission denied"):
                load(folder)
        finally:
            os.seteuid(0)
            (folder / name).chmod(0o644)
    assert len(load(folder)) == 3


def test_a_large_index_is_read_in_pieces(folder, monkeypatch):
    """A place that is wrong is found in the last as in the first."""
    monkeypatch.setattr(binarised, "PIECE", 7)
    binarise(folder / "large.de-en.de", [[5, 2]] * 1000)
    assert binarised.check_side(folder / "large.de-en.de", 24) == 1000
    path = folder / "large.de-en.de.idx"
    numbers(path, path.stat().st_size - 8, "<q", 3)
    with pytest.raises(UserError, match="are not contiguous"):
        binarised.check_side(folder / "large.de-en.de", 24)
