"""Tiny splits: a described corpus, fairseq's task with few tokens, and a model as a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from fairseq import models
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import NUM_WORDS, SMALL, parse
from helpers import translation_task as small_task
from omegaconf import OmegaConf

from user_dir.corpora import Corpus, load_corpus

SPLITS = "splits: {train: 'train.{language}', valid: 'dev.{language}', test: 'test.{language}'}\n"
SENTENCES = ["Der Hund schläft.", "Die Katze sieht den Hund.", "Wo ist das Haus?", "The dog sleeps."]


def dictionary() -> Dictionary:
    """As large as that of the helpers, but of sentencepiece pieces that are whole words."""
    words = Dictionary()
    for i in range(NUM_WORDS):
        words.add_symbol(f"▁word{i}")
    return words


def described(folder: Path, *lines: str) -> Corpus:
    """A corpus with a YAML description, extended by ``lines``; it has no files."""
    path = folder / "mine" / "corpus.yaml"
    path.parent.mkdir(parents=True)
    head = f"title: mine\nlanguages: [de, en]\nvocabulary_size: 200\n{SPLITS}"
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


def model_folder(folder: Path, seed: int = 1, direction: tuple[str, str] = ("de", "en")) -> Path:
    """A model that is handed over as a folder, with random weights in float16."""
    torch.manual_seed(seed)
    mine = described(folder / "described")
    shutil.copy(mine.description.path, folder / "corpus.yaml")
    how = {"model_prefix": str(folder / "spm"), "vocab_size": 60, "model_type": "bpe", "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES * 5), **how)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    words = Dictionary()
    for number in range(3, 3 + NUM_WORDS):
        words.add_symbol(pieces.id_to_piece(number))
    for language in direction:
        words.save(str(folder / f"dict.{language}.txt"))
    source, target = direction
    flags = f"--task translation --source-lang {source} --target-lang {target} --share-all-embeddings"
    args = parse(f"{SMALL} {flags}")
    weights = models.build_model(args, small_task()).state_dict()
    cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(args), resolve=True, enum_to_str=True)
    state = {
        "args": None,
        "cfg": cfg,
        "model": {name: (3 * value).half() for name, value in weights.items()},
        "optimizer_history": [{"num_updates": 3, "lr_scheduler_state": {}, "optimizer_name": "adam"}],
        "extra_state": {"train_iterator": {"epoch": 2}, "max_len_b": 230},
        "last_optimizer_state": None,
    }
    torch.save(state, folder / "model.pt")
    return folder
