"""One training, told to ``fairseq-train`` and to ``scripts/train.py``; whether two trainings are the same."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml
from commands import train_flags

from user_dir.checkpoints import read_checkpoint

FLAGS = ["--cpu", "--no-epoch-checkpoints", "--alpha-log-interval", "1", "--alpha-lr-multiplier", "5"]


def same_flags(corpus: Path, folder: Path, *flags) -> list[str]:
    """What ``fairseq-train`` is given."""
    return train_flags(corpus, folder, *FLAGS, "--alpha-log", folder / "alpha.jsonl", *flags)


def same_config(corpus: Path, folder: Path, path: Path, **settings) -> Path:
    """The same as a config for ``scripts/train.py``, written to ``path``.

    Args:
        corpus: prepared.
        folder: for the checkpoints.
        path: of the YAML file.
        settings: more of them, a dict for each section.
    """
    model = {"_name": "adaptively_sparse_transformer", "encoder_embed_dim": 32, "encoder_ffn_embed_dim": 64}
    for side in ("encoder", "decoder"):
        model.update({f"{side}_layers": 2, f"{side}_attention_heads": 4})
    model.update(dropout=0.1, share_all_embeddings=True, alpha_lr_multiplier=5)
    model.update(alpha_log=str(folder / "alpha.jsonl"), alpha_log_interval=1)
    data = {"data": str(corpus / "bin"), "source_lang": "de", "target_lang": "en"}
    config = {
        "common": {"seed": 3, "log_interval": 2, "cpu": True},
        "task": {"_name": "translation", **data},
        "model": model,
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "dataset": {"max_tokens": 1000, "num_workers": 0},
        "optimization": {"lr": [0.002]},
        "checkpoint": {"save_dir": str(folder), "no_epoch_checkpoints": True},
        "hydra": {"run": {"dir": str(folder)}, "job": {"chdir": False}, "output_subdir": None},
    }
    for section, more in settings.items():
        config[section] = {**config[section], **more}
    path.write_text(yaml.safe_dump(config))
    return path


def same(left, right) -> bool:
    """Whether nested states are equal, bit for bit."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def assert_same_training(first: Path, other: Path, *names: str) -> None:
    """Parameters, their moving averages, the optimizer's state and the α log of two folders are the same.

    Args:
        first: folder of checkpoints and ``alpha.jsonl``.
        other: another.
        names: of the checkpoints; ``checkpoint_last.pt`` by default.
    """
    for name in names or ("checkpoint_last.pt",):
        left, right = (read_checkpoint(folder / name) for folder in (first, other))
        for part in ("model", "last_optimizer_state"):
            assert same(left[part], right[part]), (name, part)
        assert same(*(state["extra_state"].get("ema") for state in (left, right))), (name, "ema")
    assert (first / "alpha.jsonl").read_text() == (other / "alpha.jsonl").read_text()
