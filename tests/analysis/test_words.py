"""Words from pieces, kinds of tokens, lists of interrogatives."""

from __future__ import annotations

import pytest
import torch
from fairseq.data import Dictionary

from user_dir.analysis.words import Pieces, interrogatives_of


def dictionary(pieces: str) -> Dictionary:
    words = Dictionary()
    for piece in pieces.split():
        words.add_symbol(piece)
    return words


def batch(words: Dictionary, text: str, left: int = 0, right: int = 0) -> torch.Tensor:
    tokens = [words.index(piece) for piece in text.split()]
    return torch.tensor([[words.pad()] * left + tokens + [words.pad()] * right])


@pytest.mark.parametrize(("left", "right"), [(0, 0), (2, 0), (0, 2)])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("▁the ▁Bau m ▁Bau m </s>", [0, 1, 1, 2, 2, -1]),  # </s> is not part of the preceding word
        ("</s> m ▁the", [-1, 0, 1]),  # a word starts after </s>, with or without ▁
        ("▁Bau m . ▁the", [0, 0, 1, 2]),  # punctuation is a word of its own
        ("▁Bau - m ' s </s>", [0, 1, 2, 3, 4, -1]),  # and separates its neighbours
        ("▁ m . ▁ . ▁the", [0, 0, 1, 2, 2, 3]),  # a bare ▁ belongs to the next piece
        ("<unk> m <unk> ▁the <unk>", [0, 0, 0, 1, 1]),  # <unk> is a piece without a mark
        ("</s>", [-1]),
    ],
)
def test_words_of_pieces(text, expected, left, right):
    words = dictionary("▁the ▁Bau m . - ' s ▁")
    indices = Pieces(words, "xx").words(batch(words, text, left, right))
    assert indices.tolist() == [[-1] * left + expected + [-1] * right]


def test_words_split_at_spaces():
    words = dictionary("▁the ▁Bau m .")
    tokens = batch(words, "▁Bau m . ▁the . </s>")
    assert Pieces(words, "xx").words(tokens, part_punctuation=False).tolist() == [[0, 0, 0, 1, 1, -1]]


def test_kinds_of_tokens():
    words = dictionary("▁Wer ▁w er ? ▁? ... ▁, ▁ $ ▁kommt")
    side = Pieces(words, "de").side(batch(words, "▁w er ▁kommt ▁, ... $ ▁ ▁Wer ? </s>", left=1))
    assert side.position.tolist() == [[-1, *range(10)]]
    assert side.eos.nonzero()[:, 1].tolist() == [10]
    assert side.punctuation.nonzero()[:, 1].tolist() == [4, 5, 9]  # $ is a symbol, ▁ is empty
    assert side.question.nonzero()[:, 1].tolist() == [9]
    assert side.interrogative.nonzero()[:, 1].tolist() == [1, 2, 8]
    assert not side.final_stop.any(), "it ends with a question mark"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("▁kommt ▁, ▁er . </s>", [3]),
        ("</s> ▁kommt .", [2]),  # the decoder's input
        ("▁kommt . ▁er </s>", []),
        ("▁er ? ▁er . </s>", []),
        ("</s>", []),
    ],
)
def test_final_stop(text, expected):
    words = dictionary("▁er . ▁, ? ▁kommt")
    assert Pieces(words, "de").side(batch(words, text, left=1)).final_stop.nonzero()[:, 1].tolist() == [
        place + 1 for place in expected
    ]


def test_japanese_interrogatives_are_found_without_spaces():
    words = dictionary("▁これ は 何 です か")
    text = "▁これ は 何 です か </s>"
    assert Pieces(words, "ja").side(batch(words, text)).interrogative.nonzero()[:, 1].tolist() == [2]


def test_every_list_is_readable_and_other_languages_have_none():
    examples = {"de": "wohin", "en": "where", "ja": "どこ", "ro": "unde"}
    for language, word in examples.items():
        assert word in interrogatives_of(language)
    assert interrogatives_of("jpn_Jpan") == interrogatives_of("ja_JP") == interrogatives_of("ja")
    assert interrogatives_of("fr") is None
    words = dictionary("▁où")
    assert Pieces(words, "fr").side(batch(words, "▁où </s>")).interrogative is None
