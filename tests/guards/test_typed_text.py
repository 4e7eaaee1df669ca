"""fairseq-interactive segments text as prepare.py and translate.py do."""

import pytest
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig

from user_dir import models  # noqa: F401  installs the guards
from user_dir.corpora.learning import train_model
from user_dir.corpora.segment import load_pieces, pieces_of

SENTENCES = [
    "haus sieht",
    "haus\u00a0sieht\tdas",
    "a\x85b",
    "京</s>都",
    "京<pad>都 <unk>",
    "",
    "haus madeupword0000",
]


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
def test_text_has_the_pieces_of_a_corpus(tmp_path, rule):
    train_model(["haus sieht das", "京都"] * 20, tmp_path / "spm.model", 25, normalization=rule)
    encoder = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(tmp_path / "spm.model")))
    ours = list(pieces_of(SENTENCES, load_pieces(tmp_path / "spm.model")))
    assert [encoder.encode(sentence) for sentence in SENTENCES] == ours
    fairseqs = [SentencepieceBPE.encode.__wrapped__(encoder, sentence) for sentence in SENTENCES]
    assert fairseqs[0] == ours[0] and fairseqs != ours
