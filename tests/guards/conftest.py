"""What a training that begins sets for the whole process is set back; fairseq's BLEU in validation."""

import functools
import logging
import sys
import threading
from types import SimpleNamespace

import pytest
from fairseq.tasks.translation import TranslationTask
from helpers import batch, build, dictionary


@pytest.fixture
def hooks(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(logging, "raiseExceptions", True)


@pytest.fixture
def validate():
    """``validate(words, generator, language, source, target, found)``: the task and what it returns."""

    def run(words, generator, language, source, target, found, tokenizer=None, **settings):
        cfg = {"eval_bleu_remove_bpe": None, "eval_bleu_print_samples": False, "eval_tokenized_bleu": False}
        task = SimpleNamespace(
            tgt_dict=words,
            tokenizer=tokenizer,
            cfg=SimpleNamespace(target_lang=language, **{**cfg, **settings}),
            inference_step=lambda *_, **__: [[{"tokens": found}]],
        )
        sample = {"target": target[None], "net_input": {"src_tokens": source[None]}}
        return task, TranslationTask._inference_with_bleu(task, generator, sample, None)

    return run


@pytest.fixture(scope="session")
def searched():
    """``searched(kind, **settings)``: a generator, a batch of three sentences, and what it finds for them."""
    model = functools.cache(lambda: build("--max-target-positions 50").eval())

    def run(kind, warns=False, **settings):
        inputs = batch()
        sample = {"target": inputs.pop("target"), "net_input": inputs}
        generator = kind([model()], dictionary(), **{"beam_size": 2, "max_len_b": 9, **settings})
        generator.tells_unfinished = warns
        return generator, sample, generator.generate([model()], sample)

    return run
