"""Tiny splits: a corpus that is only a description, and fairseq's task with few tokens."""

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
    """As large as that of the helpers, but of sentencepiece pieces that are whole words."""
    words = Dictionary()
    for i in range(NUM_WORDS):
        words.add_symbol(f"▁word{i}")
    return words


def described(folder: Path, *lines: str, languages: str = "de, en") -> Corpus:
    """A corpus with a YAML description, extended by ``lines``; it has no files."""
    path = folder / "mine" / "corpus.yaml"
    path.parent.mkdir(parents=True)
    head = f"title: mine\nlanguages: [{languages}]\nvocabulary_size: 200\n{SPLITS}"
    path.write_text(head + "".join(line + "\n" for line in lines))
    return load_corpus("mine", folder)


def translation_task(pairs: list[tuple[list[int], list[int]]], subset: str = "test") -> TranslationTask:
    """fairseq's task with ``subset`` consisting of these sentence pairs, in tokens of :func:`dictionary`."""
    words = dictionary()
    task = TranslationTask(TranslationConfig(), words, words)
    sides = [[torch.tensor([*tokens, words.eos()]) for tokens in side] for side in zip(*pairs)]
    sizes = [np.array([len(tokens) for tokens in side]) for side in sides]
    task.datasets[subset] = LanguagePairDataset(
        sides[0], sizes[0], words, sides[1], sizes[1], words, shuffle=False
    )
    return task
