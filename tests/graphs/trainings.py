"""Trainings by fairseq's trainer in this process, on sentences of random words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data.iterators import GroupedIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from helpers import SMALL, SMALL_LM, binarise, dictionary

import user_dir.tasks  # noqa: F401  registers the architectures

OURS, LM = "adaptively_sparse_transformer", "adaptively_sparse_transformer_lm"
PAIRS = f"--source-lang de --target-lang en {SMALL} --encoder-layers 1 --decoder-layers 1"
TEXT = f"{SMALL_LM} --sample-break-mode eos --decoder-layers 1"
# SGD, because Adam makes whole steps of the rounding errors of gradients that are 0.
FLAGS = "--optimizer sgd --lr 0.3 --num-workers 0 --seed 3 --max-tokens 60 --required-batch-size-multiple 1"
CRITERION = "--criterion label_smoothed_cross_entropy --label-smoothing 0.1"


def data(folder: Path, sentences: int = 24) -> Path:
    """Binarised pairs of 2 to 12 words; the targets also as text for a language model."""
    folder.mkdir()
    random, words = np.random.default_rng(1), dictionary()
    lengths = random.integers(2, 13, size=sentences)
    for language, change in (("de", 0), ("en", random.integers(-1, 3, size=sentences))):
        words.save(str(folder / f"dict.{language}.txt"))
        text = [
            [*random.integers(words.nspecial, len(words), size=max(1, length - 1)), words.eos()]
            for length in lengths + change
        ]
        for subset in ("train", "valid"):
            binarise(folder / f"{subset}.de-en.{language}", text)
            binarise(folder / subset, text)
    words.save(str(folder / "dict.txt"))
    return folder


class Training:
    """A training that goes on update by update; ``logged`` has what each update logs."""

    def __init__(self, folder: Path, flags: str = "", arch: str = OURS, gpu: bool = False):
        cpu = "" if gpu else "--cpu"
        what = TEXT if arch.endswith("_lm") else PAIRS
        criterion = "" if "--criterion" in flags else CRITERION
        arguments = f"{folder} {FLAGS} {criterion} {cpu} --arch {arch} {what} {flags}".split()
        args = options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)
        cfg = convert_namespace_to_omegaconf(args)
        cfg.checkpoint.save_dir = str(folder / "checkpoints")
        torch.manual_seed(cfg.common.seed)
        task = tasks.setup_task(cfg.task)
        self.trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
        metrics.reset()
        task.load_dataset("valid")
        _, self.epochs = checkpoint_utils.load_checkpoint(cfg.checkpoint, self.trainer)
        self.update_freq = cfg.optimization.update_freq[0]
        self.batches = iter(())
        self.logged: list[dict[str, float]] = []
        self.losses: list[float] = []

    def run(self, updates: int) -> Training:
        for _ in range(updates):
            samples = next(self.batches, None)
            if samples is None:
                epoch = self.epochs.next_epoch_itr(shuffle=True)
                self.batches = iter(GroupedIterator(epoch, self.update_freq))
                samples = next(self.batches)
            with metrics.aggregate(new_root=True) as meters:
                self.trainer.train_step(samples)
            self.logged.append(meters.get_smoothed_values())
            self.losses.append(float(meters["loss"].avg))
        return self

    @property
    def model(self):
        return self.trainer.get_model()

    @property
    def graphs(self):
        return self.trainer.graphs

    def parameters(self) -> torch.Tensor:
        return torch.cat([parameter.detach().double().flatten() for parameter in self.model.parameters()])


def assert_same(actual: Training, other: Training, tolerance: float = 1e-6) -> None:
    """The loss of every update, and all parameters together, agree relative to their size."""
    left, right = (torch.tensor(training.losses, dtype=torch.float64) for training in (actual, other))
    torch.testing.assert_close(left, right, rtol=tolerance, atol=0)
    difference = torch.linalg.vector_norm(actual.parameters() - other.parameters())
    assert difference <= tolerance * torch.linalg.vector_norm(other.parameters())
