"""Tiny data and checkpoints of untrained models, as fairseq's two training commands write them."""

from __future__ import annotations

import functools
from argparse import Namespace
from pathlib import Path

import torch
from editors import dictionary
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from helpers import binarise, parse
from omegaconf import OmegaConf

SIZES = {"embed_dim": 16, "ffn_embed_dim": 24, "layers": 2, "attention_heads": 2}


def make_data(folder: Path) -> None:
    """Splits train, valid and test in the format of all tasks here: de-en, and one side alone."""
    words = dictionary()
    separator = words.index("▁[SEP]")
    for name in ("dict.txt", "dict.de.txt", "dict.en.txt"):
        words.save(str(folder / name))
    sentences = [[*range(6 + i, 10), separator, *range(7, 12 + i), words.eos()] for i in range(3)]
    for split in ("train", "valid", "test"):
        for suffix in ("", ".de-en.de", ".de-en.en"):
            binarise(folder / f"{split}{suffix}", sentences)


@functools.cache
def untrained(arch: str, task: str, data: Path) -> tuple[dict, set[str], dict]:
    """Settings as fairseq-train keeps them, the names of those that were given, and the state of a model."""
    sides = ("decoder",) if task == "language_modeling" else ("encoder", "decoder")
    words = ["--task", task, *(word for side in sides for word in sizes(side, arch))]
    if task == "translation":
        words += ["--source-lang", "de", "--target-lang", "en"]
    if task == "masked_lm":
        words += ["--criterion", "masked_lm"]
    args = parse(" ".join(words), arch)
    args.data, args.save_dir, args.log_file = str(data), "checkpoints", str(data / "log")
    torch.manual_seed(1)
    cfg = convert_namespace_to_omegaconf(args)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    names = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), names - {"task"}, model.state_dict()


def make_checkpoint(path: Path, arch: str, task: str, data: Path, by_hydra: bool) -> None:
    """Write a checkpoint of an untrained model, whose settings name ``data`` and other files."""
    settings, names, model = untrained(arch, task, data)
    if by_hydra and isinstance(settings["model"], Namespace):
        kept = {name: value for name, value in vars(settings["model"]).items() if name in names}
        settings = {**settings, "model": {"_name": arch, **kept}}
    torch.save(
        {
            "args": None,
            "cfg": settings,
            "model": model,
            "optimizer_history": [{"num_updates": 1, "optimizer_name": "a", "lr_scheduler_state": {}}],
            "extra_state": {"train_iterator": {"epoch": 1}},
        },
        path,
    )


def sizes(side: str, arch: str) -> list[str]:
    """The flags that make one side of a model tiny."""
    if side == "decoder" and ("post_editor" in arch or "masked_lm" in arch):
        return []  # it is the encoder
    words = [
        word for name, size in SIZES.items() for word in (f"--{side}-{name.replace('_', '-')}", str(size))
    ]
    return words
