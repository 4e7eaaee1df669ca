"""The limit of the length of translations."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tiny_splits import described

from user_dir.corpora.binarised import HEADER, MAGIC
from user_dir.errors import UserError
from user_dir.translation.limits import RELEASED, Limit, longest_side, translation_limit


@pytest.fixture
def corpus(tmp_path):
    """A corpus of which only the lengths of the training text are there, with ``</s>``."""
    corpus = described(tmp_path)
    corpus.bin.mkdir()
    for language, lengths in {"de": [5, 301, 1], "en": [4, 2, 250]}.items():
        content = MAGIC + struct.pack(HEADER, 1, 4, len(lengths))
        content += np.array(lengths, np.int32).tobytes() + bytes(8 * len(lengths))  # and no places
        (corpus.bin / f"train.de-en.{language}.idx").write_bytes(content)
    return corpus


def test_the_limit_of_a_corpus_is_its_longest_training_sentence(corpus, tmp_path):
    assert longest_side(corpus) == 300
    assert translation_limit({}, corpus) == Limit(0, 300)
    assert translation_limit({}, corpus, 1.5, 20) == Limit(1.5, 20)
    assert translation_limit({}, corpus, 2) == Limit(2, 300)
    assert "20" in str(Limit(1.5, 20)) and "1.5" in str(Limit(1.5, 20))


def test_a_limit_has_room_for_a_translation(corpus):
    assert translation_limit({}, corpus, 1.5, 0) == Limit(1.5, 0)
    for nothing in (0, -1):
        with pytest.raises(UserError, match=f"max_len_b.*{nothing}"):
            translation_limit({}, corpus, max_len_b=nothing)


def test_the_limit_of_a_release_or_of_short_sentences(tmp_path):
    corpus = described(tmp_path)
    assert longest_side(corpus) == 0
    assert translation_limit({"extra_state": None}, corpus) == Limit(0, 200)
    assert translation_limit({"extra_state": {RELEASED: 500}}, corpus) == Limit(0, 500)
    assert translation_limit({"extra_state": {RELEASED: "500"}}, corpus) == Limit(0, 200)


def test_a_model_with_fewer_positions_has_a_limit_of_its_own():
    """A translation has at most one piece less than positions, whatever is added to that."""
    for limit in (Limit(0, 200), Limit(1.5, 20), Limit(0, 19)):
        assert limit.within(20) == Limit(0, 19) and limit.within(1024) == limit
    assert Limit(1.5, 18).within(20) == Limit(1.5, 18)
