"""BLEU of fairseq's translation task in validation, against scores computed by hand."""

import math
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from fairseq.data import Dictionary
from fairseq.trainer import Trainer

import user_dir.models  # noqa: F401  installs the guards

THAI, CHINESE, ENGLISH = "ฉันรักแมวดำ", "我喜欢黑色的小猫", "the dog sees a cat"

GENERATOR = SimpleNamespace(tells_unfinished=False)


@pytest.fixture
def validated(validate):
    """BLEU of a translation that lacks the last symbol, with one symbol of the dictionary a character."""

    def run(code: str, text: str, **settings):
        words, symbols = Dictionary(), text.split() if " " in text else list(text)
        for symbol in symbols:
            words.add_symbol(symbol)
        reference = words.encode_line(" ".join(symbols), add_if_not_exist=False).long()
        found = torch.cat([reference[:-2], reference[-1:]])
        joined = SimpleNamespace(decode=lambda line: line if " " in text else line.replace(" ", ""))
        return validate(words, GENERATOR, code, reference, reference, found, joined, **settings)[1]

    return run


@pytest.mark.parametrize(("codes", "text"), [("th tha_Thai xx", THAI), ("zh zh_CN cmn yue en", CHINESE)])
def test_one_character_less_costs_one_character(validated, codes, text):
    for code in codes.split():
        score = validated(code, text).score
        assert score == pytest.approx(100 * math.exp(1 - len(text) / (len(text) - 1))), code


def test_languages_with_spaces_and_tokens_are_scored_as_by_fairseq(validated):
    stock = sacrebleu.corpus_bleu
    for code in ("en", "deu_Latn", "xx"):
        assert validated(code, ENGLISH).score == pytest.approx(stock(["the dog sees a"], [[ENGLISH]]).score)
    assert validated("th", THAI, eval_tokenized_bleu=True).sys_len == 1
    assert sacrebleu.corpus_bleu is stock


def test_unknown_symbols_match_nothing(validate):
    words = Dictionary()
    unknown = torch.tensor([words.unk(), words.eos()])
    assert validate(words, GENERATOR, "th", unknown, unknown, unknown)[1].counts[0] == 0


def test_the_best_checkpoint_by_a_bleu_that_is_not_computed_is_refused():
    def trainer(computed: bool):
        task = SimpleNamespace(eval_bleu=computed)
        checkpoint = SimpleNamespace(best_checkpoint_metric="bleu")
        return Trainer(SimpleNamespace(task=task, checkpoint=checkpoint), task, None, None)

    with pytest.raises(SystemExit, match="eval_bleu"):
        trainer(False)
    with pytest.raises(AttributeError):  # fairseq goes on
        trainer(True)
