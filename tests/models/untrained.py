"""Tiny data and checkpoints of untrained models, as fairseq's two training commands write them."""

from __future__ import annotations

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


def make_checkpoint(path: Path, arch: str, task: str, data: Path, by_hydra: bool, flags: str = "") -> None:
    """Write a checkpoint of an untrained model, whose settings name ``data`` and other files."""
    sides = ("decoder",) if task == "language_modeling" else ("encoder", "decoder")
    options = [arch_flag for side in sides for arch_flag in sizes(side, arch)]
    if task == "translation":
        options += ["--source-lang", "de", "--target-lang", "en"]
    files = ["--save-dir", str(path.parent), "--log-file", str(path.parent / "log")]
    words = ["--task", task, *options, *files, *flags.split()]
    args = parse(" ".join(words), arch)
    args.data = str(data)
    torch.manual_seed(1)
    cfg = convert_namespace_to_omegaconf(args)
    made = tasks.setup_task(cfg.task)
    model = made.build_model(cfg.model)
    settings = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    if by_hydra and isinstance(settings["model"], Namespace):
        given = vars(settings["model"])
        known = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
        kept = {
            name: given[name] for name in known & given.keys() if name not in ("task", "save_dir", "log_file")
        }
        settings["model"] = {"_name": arch, **kept}
    torch.save(
        {
            "args": None,
            "cfg": settings,
            "model": model.state_dict(),
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
    if arch.endswith("wiki103"):
        words += ["--adaptive-softmax-cutoff", "10", "--adaptive-input-cutoff", "10"]
    return words
