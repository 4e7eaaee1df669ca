"""Binarised data with bytes and numbers changed: fairseq's task reads all of it, or gives one message."""

from __future__ import annotations

import os
import shutil
import struct
from collections import Counter
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import binarise, dictionary
from hypothesis import strategies as st
from mutations import broken
from search import search, sentence

SENTENCES = [[5, 6, 2], [7, 2], [23, 4, 8, 2], [9, 2]]
FILES = ["dict.de.txt", "dict.en.txt"]
FILES += [f"test.de-en.{side}.{ending}" for side in ("de", "en") for ending in ("bin", "idx")]
NUMBERS = (0, 1, -1, 2, 24, 127, 2**31 - 1, -(2**31))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    for language in ("de", "en"):
        dictionary().save(str(folder / f"dict.{language}.txt"))
        binarise(folder / f"test.de-en.{language}", SENTENCES)
    return folder


def use(folder: Path) -> None:
    """Load it as fairseq's commands do, and read every sentence."""
    cfg = TranslationConfig(data=str(folder), source_lang="de", target_lang="en")
    cfg.train_subset, cfg.dataset_impl, cfg.required_seq_len_multiple = "train", None, 1
    task = TranslationTask.setup_task(cfg)
    task.load_dataset("test")
    pairs = task.dataset("test")
    for i in range(len(pairs)):
        pair = pairs[i]
        assert int(pair["source"].min()) >= 0 and int(pair["source"].max()) < len(task.source_dictionary)
        assert int(pair["target"].min()) >= 0 and int(pair["target"].max()) < len(task.target_dictionary)


@st.composite
def changes(draw):
    """A file, and what becomes of it: bytes, or a function that puts something else in its place."""
    name = draw(st.sampled_from(FILES))
    how = draw(st.sampled_from(("bytes", "bytes", "a number", "a number", "a pipe", "a folder", "gone")))
    number = draw(st.sampled_from(NUMBERS)), draw(st.integers(0, 90)), draw(st.sampled_from("<hiq"[1:]))
    return name, how, number


def test_any_change_is_harmless_or_named(whole, tmp_path):
    outcomes: Counter = Counter()

    @search(150)
    @hypothesis.given(st.data(), changes())
    def check(data, change):
        name, how, (number, place, form) = change
        folder = tmp_path / "data"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        path = folder / name
        content = path.read_bytes()
        path.unlink()
        if how == "bytes":
            path.write_bytes(data.draw(broken(content)))
        elif how == "a number":
            changed = bytearray(content)
            packed = struct.pack(f"<{form}", max(min(number, 32767), -32768) if form == "h" else number)
            changed[place : place + len(packed)] = packed
            path.write_bytes(bytes(changed))
        elif how == "a pipe":
            os.mkfifo(path)
        elif how == "a folder":
            path.mkdir()
        message = sentence(use, folder)
        outcomes["read" if message is None else "refused"] += 1
        assert message is None or name.split(".")[-2] in message or "split test" in message, (change, message)
        assert message is not None or how in ("bytes", "a number"), change

    check()
    assert min(outcomes["read"], outcomes["refused"]) > 5, outcomes


@search(20)
@hypothesis.given(st.lists(st.lists(st.integers(4, 23), min_size=1, max_size=9), max_size=9))
def test_whatever_is_well_formed_is_read(whole, tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("data")
    for language in ("de", "en"):
        shutil.copy(whole / f"dict.{language}.txt", folder)
        binarise(folder / f"test.de-en.{language}", sentences, np.int64)
    message = sentence(use, folder)
    assert message is None if sentences else "is of no sentence" in message
