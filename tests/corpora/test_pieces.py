"""Pieces: white space of every kind parts words, nothing in text becomes a symbol, every line counts."""

import re
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import ENGLISH, GERMAN

from user_dir.corpora.pieces import (
    RESERVED,
    load_pieces,
    pieces_of,
    sample,
    segment,
    spaced,
    spelled,
    suitable_size,
    train_model,
    vocabulary,
    write_dictionary,
)
from user_dir.errors import UserError

RULES = ("identity", "nmt_nfkc", "nmt_nfkc_cf")
SPACES = [chr(code) for code in range(sys.maxunicode) if chr(code).isspace()]
TEXT = ["haus sieht katze", "der hund , die katze <x>"] * 20
SENTENCES = (GERMAN + ENGLISH) * 5
BERT = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("haus", "sieht", "[", "##]", "##PAD", "##SEP", "<", "##s", "##>"),
]


@pytest.fixture(scope="module", params=[*RULES, "bert"])
def processor(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "bert":
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in BERT))
        return load_pieces(folder / "vocab.txt")
    train_model(TEXT, folder / "spm.model", 35, normalization=request.param)
    return load_pieces(folder / "spm.model")


def words_of(pieces: str) -> list[str]:
    """The words of pieces, as fairseq splits and joins them; WordPiece's unknown words stand apart."""
    parts = (f"▁{part}" if part == "<unk>" else part for part in pieces.split())
    return "".join(parts).replace("▁", " ").split()


def test_white_space_parts_words_in_pieces(processor):
    sentences = [f"haus{space}sieht" for space in (*SPACES, "▁")]
    for sentence, pieces in zip(sentences, pieces_of(sentences, processor)):
        assert words_of(pieces) == ["haus", "sieht"], repr(sentence)
        assert not re.search(r"[^\S ]", pieces)


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_has_the_words_of_its_pieces(processor, text):
    """As many as sentencepiece's own rule makes of it, and the same unless WordPiece does not know them."""
    text = text.replace("\n", " ").replace("\r", " ")
    (pieces,) = pieces_of([text], processor)
    expected, words = processor.normalize(spaced(text)).replace("▁", " ").split(), words_of(pieces)
    assert len(words) == len(expected)
    assert all(a == b or b == "<unk>" for a, b in zip(expected, words))
    assert not {"<s>", "</s>", "<pad>"} & set(pieces.split())


@pytest.mark.parametrize("before", ["", "haus ", "日", "日 本"])
def test_symbols_in_text_are_text(processor, before):
    names = ["[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]", *sorted(RESERVED), "［SEP］", "＜ｓ＞", "＜/s＞"]
    sentences = [f"{before}{name} sieht" for name in names]
    for sentence, pieces in zip(sentences, pieces_of(sentences, processor)):
        unknown = {"<unk>"} if hasattr(processor, "symbols") else set()  # that of WordPiece
        assert not set(pieces.split()) & RESERVED - unknown, sentence


def test_only_the_separator_of_triplets_is_one(processor):
    (pieces,) = pieces_of(["haus sieht [SEP] ［SEP］ haus"], processor, separated=True)
    assert pieces.split().count("▁[SEP]") == 1
    assert pieces.split(" ▁[SEP] ") == [*pieces_of(["haus sieht", "［SEP］ haus"], processor)]


def test_characters_without_a_piece_are_no_symbol(tmp_path):
    """sentencepiece joins unknown characters: without the Latin alphabet, ``</s>`` is one piece."""
    train_model(["京都 日本"] * 20, tmp_path / "spm.model", 9)
    processor = load_pieces(tmp_path / "spm.model")
    assert "</s>" in processor.encode("京</s>", out_type=str)
    (pieces,) = pieces_of(["京</s>都<pad>madeupword0001"], processor)
    assert set("</s>") <= set(pieces.split()) and not RESERVED & set(pieces.split())
    assert words_of(pieces) == ["京</s>都<pad>madeupword0001"]
    assert spelled(["▁a", "</s>", "b"]) == ["▁a", *"</s>", "b"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "spm.model"
    train_model(SENTENCES, path, 60)
    return path


def test_joined_pieces_equal_the_text(model):
    pieces = list(segment(SENTENCES, model, 2))
    assert ["".join(line.split(" ")).replace("▁", " ")[1:] for line in pieces] == SENTENCES
    assert len(list(segment(["The\u2028dog", "sleeps\x85."], model, 1))) == 2


def test_the_dictionary_has_every_piece_by_its_count(model, tmp_path):
    pieces = vocabulary(model)
    assert len(pieces) == len(set(pieces)) == 60 - 3  # without <unk>, <s>, </s>
    segmented = list(segment(GERMAN, model, 1))
    write_dictionary(pieces, segmented, tmp_path / "dict.txt")
    rows = [line.rsplit(" ", 1) for line in (tmp_path / "dict.txt").read_text().splitlines()]
    counts = Counter(piece for line in segmented for piece in line.split(" "))
    assert {piece: int(count) for piece, count in rows[:57]} == {piece: counts[piece] for piece in pieces}
    assert rows[57:] == [
        ["madeupword0000", "0"],
        ["madeupword0001", "0"],
        ["madeupword0002", "0"],
    ]  # 64 with 4
    assert [int(count) for _, count in rows] == sorted((int(count) for _, count in rows), reverse=True)


@pytest.mark.parametrize(("size", "limit", "step"), [(5000, "less", 1), (5, "more", -1)])
def test_a_size_that_is_not_possible_is_refused_with_one_that_is(tmp_path, size, limit, step):
    with pytest.raises(UserError, match=rf"use --vocab-size \d+ or {limit}") as error:
        train_model(SENTENCES, tmp_path / "spm.model", size)
    possible = int(re.search(r"--vocab-size (\d+)", str(error.value))[1])
    train_model(SENTENCES, tmp_path / "spm.model", possible)
    with pytest.raises(UserError):
        train_model(SENTENCES, tmp_path / "spm.model", possible + step)


def test_every_line_counts(tmp_path):
    """With coverage 1.0, each character of the text has a piece, wherever it stands."""
    odd = [
        "ä" * 5000 + " ñ",  # a word too long for sentencepiece
        "hund " * 2000 + "ŵ",
        "ž" + " katze" * 2000,
        "ő \u2585",  # sentencepiece's own mark
        "\tů\t",
        "ķ<s>q</s>ļ",
        "京都" * 3000 + "ば",
        "☃",
    ]
    train_model([*SENTENCES * 20, *odd], tmp_path / "spm.model", 80)
    assert not set("äñŵžőůķqļ京都ば/☃") - set("".join(vocabulary(tmp_path / "spm.model")))


@pytest.mark.parametrize(
    ("pairs", "recipe"), [(29_000, 6000), (50_000, 8000), (160_239, 10_000), (4_500_000, 32_000)]
)
def test_a_suitable_size_is_near_the_recipes(pairs, recipe):
    assert 0.8 < suitable_size(pairs) / recipe < 1.25


def test_samples_are_of_their_size_in_order_and_the_same_each_time():
    assert list(sample("abc", 3, 5)) == list("abc")
    chosen = list(sample(range(1000), 1000, 300))
    assert len(chosen) == 300 and chosen == sorted(chosen) == list(sample(range(1000), 1000, 300))
    assert 400 < sum(chosen) / 300 < 600
