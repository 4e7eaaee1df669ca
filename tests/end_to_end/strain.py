"""Stress test of training: fairseq's trainer in every precision, on unusual batches.

The learning rate is ten times too high. Of every 50 batches, one has a sentence of one token next to one of
512, and one has a fully padded source, so that whole rows of scores are masked. As a command it prints a
table:

    python tests/end_to_end/strain.py data/multi30k/bin --updates 500
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import logging
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

LONG = 512  # tokens of the longest sentence
SENTENCES = 4  # per batch
EVERY = 50  # batches, two of which are unusual
WORDS = 1000  # most frequent words; others are unknown, to save time

PRECISIONS = {
    "fp32": [],
    "fp16": ["--fp16"],
    "AMP": ["--amp"],
    "bf16": ["--bf16"],
    "memory-efficient fp16": ["--memory-efficient-fp16"],
    "memory-efficient bf16": ["--memory-efficient-bf16"],
}
NORMALIZERS = {
    "softmax": ["--attention-normalizer", "softmax"],
    # α starts at its bounds and crosses to the other within about ten updates.
    "α-entmax": [
        *("--encoder-self-alpha-init", "1.000001", "--decoder-self-alpha-init", "1.999999"),
        *("--alpha-lr-multiplier", "100"),
    ],
}
# 0.02 is ten times a suitable learning rate.
MODEL = (
    "--arch adaptively_sparse_transformer --share-all-embeddings --dropout 0.1 --max-source-positions 512 "
)
MODEL += "--max-target-positions 512 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
MODEL += "--optimizer adam --lr 0.02 --distributed-world-size 1 --seed 3 " + " ".join(
    f"--{side}-embed-dim 32 --{side}-ffn-embed-dim 64 --{side}-layers 1 --{side}-attention-heads 4"
    for side in ("encoder", "decoder")
)


@dataclass
class Outcome:
    """The result of a training."""

    losses: list[float]  # of each forward pass, in bits per token
    updates: int
    overflows: int  # forward passes whose gradients the loss scaler rejected
    alphas: tuple[float, float]  # minimum and maximum over training
    scale: float | None  # final loss scale
    ended: str  # reason of an early end, else empty

    @property
    def broken(self) -> int:
        """The number of forward passes whose loss was NaN or infinite."""
        return sum(not math.isfinite(loss) for loss in self.losses)

    @property
    def loss(self) -> float:
        """Mean of the last losses."""
        last = self.losses[-EVERY:]
        return sum(last) / len(last)


def train(data: Path, flags: list[str], updates: int) -> Outcome:
    """Train a tiny model on a binarised corpus for ``updates`` updates, or until it cannot continue."""
    with contextlib.ExitStack() as stack:
        # fairseq's search for the module that produced a NaN raises StopIteration in every Transformer
        stack.enter_context(mock.patch("fairseq.trainer.NanDetector", _give_up))
        if not torch.cuda.is_available():
            stack.enter_context(half_precision_on_cpu())
        return _train(data, flags, updates)


def _give_up(model):
    raise sys.exc_info()[1]


@contextlib.contextmanager
def half_precision_on_cpu():
    """Make fairseq's half precision work on a CPU: memory statistics, autocast, loss scaler."""
    cuda = torch.cuda
    with contextlib.ExitStack() as stack:
        for owner, name, instead in (
            (cuda, "current_device", lambda: None),  # the index of a CPU
            (torch.Tensor, "cuda", lambda tensor: tensor),
            (cuda.amp, "autocast", functools.partial(torch.autocast, "cpu", torch.float16)),
            (cuda.amp, "GradScaler", functools.partial(torch.amp.GradScaler, "cpu")),
        ):
            stack.enter_context(mock.patch.object(owner, name, instead))
        yield


def _train(data: Path, flags: list[str], updates: int) -> Outcome:
    words = [str(data), "--source-lang", "de", "--target-lang", "en", *MODEL.split(), *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=words)
    args.tpu = False  # fairseq-train assumes a TPU for --bf16
    cfg = convert_namespace_to_omegaconf(args)
    torch.manual_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    for dictionary in (task.source_dictionary, task.target_dictionary):
        del dictionary.symbols[WORDS:]
    task.load_dataset("train")
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    trainer.save_checkpoint = lambda *args: None  # no checkpoint after a crash

    losses, alphas, ended = [], [], ""
    step = task.train_step

    def observed(*args, **kwargs):
        loss, size, logged = step(*args, **kwargs)
        losses.append(loss.item() / size / math.log(2))
        for layers in trainer.get_model().alpha_values().values():
            alphas.extend(itertools.chain(*layers))
        return loss, size, logged

    task.train_step = observed
    try:
        for batch in batches(task.dataset("train"), task.source_dictionary):
            if trainer.get_num_updates() == updates or len(losses) > 2 * updates:
                break
            trainer.train_step([batch])
    except FloatingPointError as error:
        ended = str(error)
    made = trainer.get_num_updates()
    scaler = getattr(trainer.optimizer, "scaler", None)
    scale = None if scaler is None else getattr(scaler, "loss_scale", None) or scaler.get_scale()
    return Outcome(losses, made, len(losses) - made, (min(alphas), max(alphas)), scale, ended)


def batches(dataset, dictionary):
    """Sentences in order, repeatedly, with two unusual batches in every fifty."""
    for number in itertools.count(1):
        first = number * SENTENCES % (len(dataset) - LONG)
        pairs = [_pair(dataset, i, dictionary) for i in range(first, first + SENTENCES)]
        if number % EVERY == 0:
            pairs = [_long(dataset, first, dictionary), _short(pairs[0])]
        batch = dataset.collater(pairs)
        if number % EVERY == EVERY // 2:
            batch["net_input"]["src_tokens"][0] = dictionary.pad()
        yield batch


def _pair(dataset, i: int, dictionary) -> dict:
    pair = dict(dataset[i])
    for side in ("source", "target"):
        pair[side] = pair[side].where(pair[side] < WORDS, dictionary.unk())
    return pair


def _long(dataset, first: int, dictionary) -> dict:
    pairs = [_pair(dataset, i, dictionary) for i in range(first, first + LONG)]
    sides = {side: torch.cat([pair[side][:-1] for pair in pairs]) for side in ("source", "target")}
    eos = pairs[0]["source"][-1:]
    return {"id": first, **{side: torch.cat([tokens[: LONG - 1], eos]) for side, tokens in sides.items()}}


def _short(pair: dict) -> dict:
    return {**pair, "source": pair["source"][-1:], "target": pair["target"][-1:]}


def main() -> None:
    """Train in every precision with every normalizer, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="what fairseq-preprocess made, from German to English")
    parser.add_argument("--updates", type=int, default=500, metavar="N", help="default: 500")
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import user_dir.models  # noqa: F401  registers the model

    logging.disable(logging.WARNING)
    print("| precision | weights | updates | loss | NaN or inf | overflows | loss scale | α |")
    print("|---|---|---|---|---|---|---|---|")
    for (precision, flags), (name, own) in itertools.product(PRECISIONS.items(), NORMALIZERS.items()):
        found = train(args.data, [*flags, *own], args.updates)
        updates = f"{found.updates}{': ' * bool(found.ended)}{found.ended[:80]}"
        scale = "" if found.scale is None else f"{found.scale:g}"
        alphas = "{:.7g} to {:.7g}".format(*found.alphas)
        cells = (precision, name, updates, f"{found.loss:.2f}", found.broken, found.overflows, scale, alphas)
        print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
