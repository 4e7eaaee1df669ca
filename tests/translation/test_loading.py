"""What a checkpoint translates: its direction, and the limit of its translations."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import checkpoint_state, printed_alone
from tiny_splits import described, dictionary, translation_task

from user_dir.errors import UserError
from user_dir.translation.loading import (
    MAX_LEN_B,
    Limit,
    load_split,
    longest_side,
    translation_direction,
    translation_limit,
)


def test_the_limit_of_a_corpus_is_its_longest_training_sentence(tmp_path):
    corpus = described(tmp_path)
    assert longest_side(corpus) == 0 and translation_limit({"extra_state": None}, corpus) == Limit(0, 200)
    corpus.bin.mkdir()
    for language, lengths in {"de": [5, 301, 1], "en": [4, 2, 250]}.items():  # with </s>
        content = b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, 4, len(lengths))
        content += np.array(lengths, np.int32).tobytes() + bytes(8 * len(lengths))  # and no places
        (corpus.bin / f"train.de-en.{language}.idx").write_bytes(content)
        (corpus.bin / f"train.de-en.{language}.bin").write_bytes(bytes(8))
    assert longest_side(corpus) == 300
    assert translation_limit({}, corpus) == Limit(0, 300)
    assert translation_limit({}, corpus, 1.5, 20) == Limit(1.5, 20)
    assert translation_limit({"extra_state": {MAX_LEN_B: 500}}, corpus, 2) == Limit(2, 500)
    assert str(Limit(1.5, 20)) == "the limit of 1.5 × source + 20 pieces"


def test_a_model_with_fewer_positions_has_a_limit_of_its_own():
    """A translation has at most one piece less than positions, whatever is added to that."""
    for limit in (Limit(0, 200), Limit(1.5, 20), Limit(0, 19)):
        assert limit.within(20) == Limit(0, 19) and limit.within(1024) == limit
    assert Limit(1.5, 18).within(20) == Limit(1.5, 18)


def test_a_checkpoint_must_match_its_corpus(tmp_path):
    corpus, task = described(tmp_path), {"source_lang": "en", "target_lang": "de"}
    corpus.bin.mkdir()
    for language in corpus.languages:
        dictionary().save(str(corpus.bin / f"dict.{language}.txt"))
    rows = torch.zeros(len(dictionary()), 2)

    def direction(name="transformer", task=task, **model):
        state = checkpoint_state({"_name": name}, model=model)
        state["cfg"]["task"] = task
        return translation_direction(state, Path("model.pt"), corpus)

    embeddings = {"encoder.embed_tokens.weight": rows, "decoder.embed_tokens.weight": rows}
    assert direction(**embeddings) == ("en", "de")
    with pytest.raises(UserError, match=r"model\.pt translates en-fr"):
        direction(task={**task, "target_lang": "fr"}, **embeddings)
    for name, side in (("transformer_lm", "decoder"), ("masked_lm", "encoder")):
        with pytest.raises(UserError, match=rf"model\.pt is of a {name}"):
            direction(name, task={}, **{f"{side}.embed_tokens.weight": rows})


def test_data_of_a_split_that_were_cut_are_named(tmp_path):
    """Those of other splits need not be here."""
    task = translation_task([([5], [6])], "valid")
    task.cfg.data = str(tmp_path / "bin")
    file = tmp_path / "bin" / "test.de-en.de.bin"
    file.parent.mkdir()
    outputs = {"bin/test.de-en.de.bin": 9, "bin/train.de-en.de.bin": 9}
    (file.parent / "stamp.json").write_text(json.dumps({"outputs": outputs}))
    for content in (None, b"cut"):
        if content:
            file.write_bytes(content)
        with pytest.raises(UserError, match=r"bin/test\.de-en\.de\.bin is missing or damaged"):
            load_split(task, "test")
    file.write_bytes(bytes(9))
    with pytest.raises(FileNotFoundError, match="Dataset not found"):  # fairseq's, which looks on
        load_split(task, "test")


def test_loading_knows_every_model_of_ours_without_the_plugin():
    """As in experiments/run.py, which does not import ``user_dir.tasks``."""
    program = "import user_dir.translation.loading; from fairseq.models import ARCH_MODEL_REGISTRY as known; "
    program += "before = set(known); import user_dir.tasks; print(*set(known) - before)"
    assert printed_alone(program) == "\n"
