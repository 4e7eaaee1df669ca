"""Restoring natural text from pieces, bytes and tokens."""

import pytest
from fairseq.data.data_utils import post_process

from user_dir.translation.text import detokenizer, join_bytes, join_pieces


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("<0xE2><0x98><0x83> melts", "☃ melts"),
        ("a<0xE4><0xBA><0xAC>b<0xC3><0xA9>", "a京bé"),
        ("torn <0xE2><0x98>", "torn \ufffd"),
        ("one<0x0A><0x0D>line<0x09>", "one  line "),
        ("<0xZZ> <tag>", "<0xZZ> <tag>"),
    ],
)
def test_byte_pieces_become_characters(line, text):
    assert join_bytes(line) == text


@pytest.mark.parametrize("line", ["▁Der ▁Hund s chl äft .", "", " ▁ a  b▁ ", "<unk> ▁▁ <s>\t▁x"])
def test_pieces_are_joined_as_by_fairseq(line):
    assert join_pieces(line) == post_process(line, "sentencepiece")


def test_byte_pieces_of_a_real_model(tmp_path):
    """Pieces joined by fairseq are restored to what sentencepiece itself decodes."""
    import sentencepiece

    from user_dir.corpora.learning import train_model
    from user_dir.corpora.segment import segment

    model = tmp_path / "spm.model"
    train_model(["Der Hund schläft.", "The dog sleeps."] * 20, model, 300, byte_fallback=True)
    text = "Der ☃ sleeps 京都."
    pieces = next(segment([text], model, 1))
    joined = join_pieces(pieces)
    assert "<0x" in joined and join_bytes(joined) == text
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    assert processor.decode(pieces.split(" ")) == text


@pytest.mark.parametrize(
    ("language", "tokens", "text"),
    [
        ("en", "The dog 's bone , said he ( loudly ) .", "The dog's bone, said he (loudly)."),
        ("de", "Das ist gut , nicht wahr ?", "Das ist gut, nicht wahr?"),
        ("fra_Latn", "l' eau coule : oui !", "l'eau coule : oui !"),
        ("fr_CA", "l' eau coule : oui !", "l'eau coule : oui !"),
        ("en", "l' eau coule : oui !", "l' eau coule: oui!"),
        ("zh_TW", "我 喜歡 GPU 。", "我喜歡GPU。"),
        ("tha_Thai", "ฉัน รัก แมว", "ฉันรักแมว"),
        ("ja", "京都 の 寺 は 1001 年 に Kyoto Station で 。", "京都の寺は1001年にKyoto Stationで。"),
        ("ja", "Jose\u0301 Mourinho 監督", "Jose\u0301 Mourinho監督"),
        ("ja", "José Mourinho と Điện Biên Phủ と 5 × 6", "José MourinhoとĐiện Biên Phủと5×6"),
    ],
)
def test_detokenised(language, tokens, text):
    assert detokenizer(language)(tokens) == text
