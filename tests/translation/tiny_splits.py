"""Splits small enough to write down: a corpus that is only described, and fairseq's task over few tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import NUM_WORDS

from user_dir.corpora import Corpus, load_corpus

SPLITS = "splits: {train: 'train.{language}', valid: 'dev.{language}', test: 'test.{language}'}\n"


def dictionary() -> Dictionary:
    """As large as that of the helpers, but of sentencepiece's pieces, each a word."""
    words = Dictionary()
    for i in range(NUM_WORDS):
        words.add_symbol(f"▁word{i}")
    return words


def described(folder: Path, *lines: str, languages: str = "de, en") -> Corpus:
    """A corpus of its own YAML, with ``lines`` more; it has no files."""
    path = folder / "mine" / "corpus.yaml"
    path.parent.mkdir(parents=True)
    head = f"title: mine\nlanguages: [{languages}]\nvocabulary_size: 200\n{SPLITS}"
    path.write_text(head + "".join(line + "\n" for line in lines))
    return load_corpus("mine", folder)


def translation_task(pairs: list[tuple[list[int], list[int]]], subset: str = "test") -> TranslationTask:
    """fairseq's task, whose ``subset`` is these pairs of sentences, in the tokens of :func:`dictionary`."""
    words = dictionary()
    task = TranslationTask(TranslationConfig(), words, words)
    sides = [[torch.tensor([*tokens, words.eos()]) for tokens in side] for side in zip(*pairs)]
    sizes = [np.array([len(tokens) for tokens in side]) for side in sides]
    task.datasets[subset] = LanguagePairDataset(
        sides[0], sizes[0], words, sides[1], sizes[1], words, shuffle=False
    )
    return task
