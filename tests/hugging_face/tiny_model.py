"""A tiny prepared corpus, a checkpoint of an untrained model; archives and exports that are changed."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import SMALL, parse, translation_task
from tiny_splits import described, dictionary
from triplets import bert_vocabulary

from user_dir.checkpoints import save_checkpoint
from user_dir.corpora import Corpus
from user_dir.corpora.learning import train_model
from user_dir.corpora.reserved import SYMBOLS
from user_dir.errors import UserError
from user_dir.releases.folders import check_same

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
        fallback = corpus.description.byte_fallback
        size = 320 if fallback else 60
        train_model(SENTENCES, corpus.pieces, size, byte_fallback=fallback, symbols=symbols)
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
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, translation_task())
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


def tiny_checkpoint(path: Path, state: dict | None = None) -> Path:
    save_checkpoint(state or tiny_state(), path)
    return path


def contents(corpus, checkpoint: Path) -> dict[str, bytes]:
    """What there is in an archive of a checkpoint."""
    paths = [corpus.pieces, *sorted(corpus.bin.iterdir())]
    return {
        "README.md": b"card",
        "corpus.yaml": corpus.description.path.read_bytes(),
        "model.pt": checkpoint.read_bytes(),
        **{path.name: path.read_bytes() for path in paths},
    }


def files_of(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as file:
        return {entry.name: file.extractfile(entry).read() for entry in file}


def write_tar(path: Path, files: dict[str, bytes], *others: tarfile.TarInfo) -> Path:
    """A tar of files and, after them, entries without content."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
        for entry in others:
            file.addfile(entry)
    return path


def listed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files with a manifest that fits them, as somebody would write who forges an archive."""
    others = {name: content for name, content in files.items() if name != "manifest.json"}
    entries = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in others.items()
    }
    manifest = {"format": 1, "corpus": "mine", "files": entries}
    return {"manifest.json": json.dumps(manifest).encode(), **others}


def entry(name: str, kind: bytes, target: str = "/etc/passwd") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


def check_noticed(model, log_probs) -> None:
    """An export with these log-probabilities passes until the model computes something else."""
    given = SimpleNamespace(checkpoint="model.pt", to="another program", model=model)
    check_same(given, log_probs)
    model.encoder.layers[0].fc1.bias.data += 0.1
    with pytest.raises(UserError, match="differ"):
        check_same(given, log_probs)
