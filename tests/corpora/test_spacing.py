"""White space of every kind parts words, in all pieces; nothing in text becomes a symbol of fairseq's."""

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from user_dir.corpora.learning import train_model
from user_dir.corpora.reserved import RESERVED, spelled
from user_dir.corpora.segment import load_pieces, pieces_of, segment, vocabulary
from user_dir.corpora.spacing import spaced
from user_dir.corpora.word_check import WordCheck, words_of
from user_dir.errors import UserError

RULES = ("identity", "nfkc", "nfkc_cf", "nmt_nfkc", "nmt_nfkc_cf")
SPACES = [chr(code) for code in range(sys.maxunicode) if chr(code).isspace()]
# Unicode 16, PropList.txt.
WHITE_SPACE = [*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029]
WHITE_SPACE += [0x202F, 0x205F, 0x3000]
TEXT = ["haus sieht katze", "der hund , die katze <x>"] * 20
BERT = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("haus", "sieht", "[", "##]", "##PAD", "##SEP", "<", "##s", "##>"),
]


@pytest.fixture(scope="module", params=[*RULES, "bytes", "bert"])
def processor(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "bert":
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in BERT))
        return load_pieces(folder / "vocab.txt")
    rule, fallback = ("nmt_nfkc", True) if request.param == "bytes" else (request.param, False)
    train_model(TEXT, folder / "spm.model", 35 + 256 * fallback, normalization=rule, byte_fallback=fallback)
    return load_pieces(folder / "spm.model")


def test_all_of_unicodes_white_space_is_space():
    for character in {*SPACES, *map(chr, WHITE_SPACE), "▁"}:
        assert spaced(f"a{character}b") == "a b"
    for character in "\u200b\u200c\u200d\ufeff\u00ad":  # zero width: within words
        assert spaced(f"a{character}b") == f"a{character}b"


def test_white_space_parts_words_in_pieces(processor):
    sentences = [f"haus{space}sieht" for space in (*SPACES, "▁")]
    for sentence, pieces in zip(sentences, pieces_of(sentences, processor)):
        assert words_of(pieces) == ["haus", "sieht"], repr(sentence)
        assert not re.search(r"[^\S ]", pieces)


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_has_the_words_of_its_pieces(processor, text):
    text = text.replace("\n", " ").replace("\r", " ")
    (pieces,) = pieces_of([text], processor)
    WordCheck(processor)(text, pieces)
    assert not {"<s>", "</s>", "<pad>"} & set(pieces.split())


@pytest.mark.parametrize("before", ["", "haus ", "日", "日 本"])
def test_symbols_in_text_are_text(processor, before):
    names = ["[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]", *sorted(RESERVED), "［SEP］", "＜ｓ＞", "＜/s＞"]
    sentences = [f"{before}{name} sieht" for name in names]
    for sentence, pieces in zip(sentences, pieces_of(sentences, processor)):
        found = set(pieces.split())
        unknown = {"<unk>"} if hasattr(processor, "symbols") else set()  # that of WordPiece
        assert not found & RESERVED - unknown, sentence
        WordCheck(processor)(sentence, pieces)


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


def test_learned_pieces_named_like_symbols_are_not_in_the_dictionary(tmp_path):
    train_model(
        ["京<pad>都madeupword0003"] * 50, tmp_path / "spm.model", 9, symbols=["<pad>", "madeupword0003"]
    )
    processor = load_pieces(tmp_path / "spm.model")
    assert "<pad>" in processor.encode("京<pad>都", out_type=str)
    assert not {"<pad>", "madeupword0003"} & set(vocabulary(tmp_path / "spm.model"))
    (pieces,) = pieces_of(["京<pad>都madeupword0003"], processor)
    assert not RESERVED & set(pieces.split())


def test_spelling():
    assert spelled(["▁a", "</s>", "b"]) == ["▁a", *"</s>", "b"]
    assert spelled(["▁a", "s>"]) == ["▁a", "s>"]


def test_lost_words_end_with_the_line(tmp_path, monkeypatch):
    """As without the rule for white space."""
    train_model(TEXT, tmp_path / "spm.model", 35, normalization="identity")
    monkeypatch.setattr("user_dir.corpora.segment.spaced", str)
    with pytest.raises(UserError, match=r"valid \(de\), line 3:.*haus.*haussieht"):
        list(segment(["haus sieht"] * 2 + ["haus\u00a0sieht"], tmp_path / "spm.model", 1, where="valid (de)"))
