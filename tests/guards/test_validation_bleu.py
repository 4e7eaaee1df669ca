"""BLEU of fairseq's translation task in validation, against scores computed by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask

import user_dir.models  # noqa: F401  installs the guards

THAI, CHINESE, ENGLISH = "ฉันรักแมวดำ", "我喜欢黑色的小猫", "the dog sees a cat"

GENERATOR = SimpleNamespace(tells_unfinished=False)


def sample(target) -> dict:
    return {"target": target, "net_input": {"src_tokens": target}}


def validated(code: str, text: str, **settings):
    """BLEU of a translation that lacks the last symbol, with one symbol of the dictionary a character."""
    words = Dictionary()
    for symbol in text if " " not in text else text.split():
        words.add_symbol(symbol)
    symbols = text.split() if " " in text else list(text)
    reference = words.encode_line(" ".join(symbols), add_if_not_exist=False).long()
    hypothesis = torch.cat([reference[:-2], reference[-1:]])
    defaults = {"eval_bleu_remove_bpe": None, "eval_bleu_print_samples": False, "eval_tokenized_bleu": False}
    task = SimpleNamespace(
        tgt_dict=words,
        tokenizer=SimpleNamespace(decode=lambda line: line if " " in text else line.replace(" ", "")),
        cfg=SimpleNamespace(target_lang=code, **{**defaults, **settings}),
        inference_step=lambda *_, **__: [[{"tokens": hypothesis}]],
    )
    return TranslationTask._inference_with_bleu(task, GENERATOR, sample(reference[None]), None)


@pytest.mark.parametrize(("codes", "text"), [("th tha_Thai xx", THAI), ("zh zh_CN cmn yue en", CHINESE)])
def test_one_character_less_costs_one_character(codes, text):
    for code in codes.split():
        score = validated(code, text).score
        assert score == pytest.approx(100 * math.exp(1 - len(text) / (len(text) - 1))), code


def test_languages_with_spaces_and_tokens_are_scored_as_by_fairseq():
    stock = sacrebleu.corpus_bleu
    for code in ("en", "deu_Latn", "xx"):
        assert validated(code, ENGLISH).score == pytest.approx(stock(["the dog sees a"], [[ENGLISH]]).score)
    assert validated("th", THAI, eval_tokenized_bleu=True).sys_len == 1
    assert sacrebleu.corpus_bleu is stock


def test_unknown_symbols_match_nothing():
    words = Dictionary()
    task = SimpleNamespace(
        tgt_dict=words,
        tokenizer=None,
        cfg=SimpleNamespace(
            target_lang="th",
            eval_bleu_remove_bpe=None,
            eval_bleu_print_samples=False,
            eval_tokenized_bleu=False,
        ),
        inference_step=lambda *_, **__: [[{"tokens": torch.tensor([words.unk(), words.eos()])}]],
    )
    unknown = sample(torch.tensor([[words.unk(), words.eos()]]))
    assert TranslationTask._inference_with_bleu(task, GENERATOR, unknown, None).counts[0] == 0
