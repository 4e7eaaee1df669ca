"""A tiny prepared corpus, and a checkpoint of an untrained model."""

from __future__ import annotations

from pathlib import Path

from fairseq import models
from helpers import SMALL, parse, translation_task
from tiny_splits import described, dictionary
from triplets import bert_vocabulary

from user_dir.corpora import Corpus
from user_dir.corpora.pieces import SYMBOLS, train_model

SENTENCES = ["Der Hund schläft.", "Die Katze sieht den Hund.", "Wo ist das Haus?", "The dog sleeps."] * 5


def tiny_corpus(folder: Path, *lines: str) -> Corpus:
    """What there is of a prepared corpus that translating new text needs; ``lines`` extend its YAML."""
    corpus = described(folder, *lines)
    corpus.bin.mkdir()
    for language in corpus.languages:
        dictionary().save(str(corpus.bin / f"dict.{language}.txt"))
    corpus.pieces.parent.mkdir(exist_ok=True)
    if corpus.description.wordpiece:
        corpus.pieces.write_text("".join(f"{token}\n" for token in bert_vocabulary()), encoding="utf-8")
    else:
        symbols = SYMBOLS if corpus.description.triplets else ()
        train_model(SENTENCES, corpus.pieces, 60, symbols=symbols)
    return corpus


def tiny_state(
    data: str = "data/mine/bin", flags: str = "", arch: str = "adaptively_sparse_transformer"
) -> dict:
    """What fairseq-train writes of a small model, with settings that name files of this machine."""
    given = f"{SMALL} {flags} --share-all-embeddings --task translation --source-lang de --target-lang en"
    args = parse(given, arch)
    args._name = args.arch
    task = {"_name": "translation", "data": data, "source_lang": "de", "target_lang": "en"}
    task |= {"left_pad_source": True, "left_pad_target": False}
    model = models.build_model(args, translation_task())
    return {
        "args": None,
        "cfg": {
            "model": args,
            "task": task,
            "common": {"seed": 7, "user_dir": data},
            "ema": {"_name": None, "store_ema": True, "ema_decay": 0.99, "ema_fp32": False},
            "checkpoint": {"save_dir": data, "patience": 3},
            "job_logging_cfg": {"handlers": {"file": {"filename": data}}},
        },
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 3, "lr_scheduler_state": {}, "optimizer_name": "adam"}],
        "extra_state": {"train_iterator": {"epoch": 2}, "previous_training_time": 1.5},
        "last_optimizer_state": {"state": {}},
    }
