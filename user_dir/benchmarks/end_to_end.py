"""Speed in practice: training in tokens per second, translation in sentences per second, and memory.

Runs fairseq's trainer and generator in this process. Batches are prepared beforehand, so times exclude data
loading; all systems get the same batches.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from fairseq.trainer import Trainer

from ..errors import one_line
from ..translation.search import BeamSearch
from .measure import interleaved, peak_memory, synchronize
from .speed import speed_rows
from .systems import STOCK, SYSTEMS, Variant, Workshop

GENERATION_TOKENS = 4096  # per batch, as in scripts/evaluate.py
# By device and size: updates per round, and sentences to translate per round.
WORK = {
    ("cpu", "tiny"): (5, 400),
    ("cpu", "iwslt"): (1, 100),
    ("cuda", "tiny"): (20, 1000),
    ("cuda", "iwslt"): (20, 1000),
}


@dataclass
class Runner:
    """A system with its trainer, and the reason if it had to stop."""

    system: Variant
    trainer: Trainer
    failure: str | None = None

    def updates(self, batches: list[dict]) -> None:
        """One update per batch, as fairseq-train makes it: forward, backward, clipping, Adam."""
        with self.system.inside():
            for batch in batches:
                self.trainer.train_step([batch])

    def translate(self, batches: list[dict]) -> None:
        """Translate by beam search, with each batch's mean reference length as output length."""
        self.trainer.model.eval()
        search = BeamSearch([self.trainer.model], self.trainer.task, self.trainer.cfg.generation.beam)
        search.generator.max_len_a = 0
        with self.system.inside():
            for batch in batches:
                length = mean_length(batch, self.trainer.task.target_dictionary.pad())
                search.generator.min_len = search.generator.max_len_b = length
                if any(len(best[0]["tokens"]) != length + 1 for best in search(batch)):
                    raise AssertionError("a translation does not have the prescribed length")

    def seconds(self, work: Callable[[list[dict]], None], batches: list[dict]) -> float:
        """The time that ``work`` takes; NaN after gradients have overflowed once."""
        if self.failure is not None:
            return math.nan
        synchronize(self.trainer.device)
        begin = time.perf_counter()
        try:
            work(batches)
        except FloatingPointError as error:
            self.failure = one_line(error)
            return math.nan
        synchronize(self.trainer.device)
        return time.perf_counter() - begin

    def peak_of_update(self, batch: dict) -> int:
        """Bytes allocated during an update, in addition to parameters and optimizer state."""
        self.trainer.zero_grad()
        # With cuda_env, fairseq resets the peak statistics for its log.
        self.trainer.cuda_env = None
        return peak_memory(lambda: self.updates([batch]), self.trainer.device)


def build(workshop: Workshop) -> list[Runner]:
    """Build all systems, the stock one first, because the others get its parameters."""
    return [Runner(system, workshop.trainer(system)) for system in SYSTEMS]


def time_training(runners: list[Runner], updates: int, rounds: int, seed: int) -> list[dict]:
    """Training speed per system: ``tokens_per_second`` (target) and ``peak_bytes`` of the largest update.

    In each round each system makes ``updates`` updates on the same batches; ``to_stock`` is the ratio to the
    stock model's speed. A system whose gradients overflow has ``failure`` instead.
    """
    batches = training_batches(runners[0].trainer, updates * (rounds + 1))
    for runner in runners:
        runner.seconds(runner.updates, batches[:updates])
    blocks = [batches[start : start + updates] for start in range(updates, len(batches), updates)]
    jobs = {
        runner.system.name: functools.partial(
            lambda runner, i: runner.seconds(runner.updates, blocks[i]), runner
        )
        for runner in runners
    }
    times = interleaved(jobs, rounds, seed, "training")
    tokens = [sum(batch["ntokens"] for batch in block) for block in blocks]
    largest = max(batches, key=_score_count)
    rows = speed_rows(times, tokens, "tokens_per_second", STOCK.name, failures(runners))
    for runner, row in zip(runners, rows):
        if runner.failure is None:
            row["peak_bytes"] = runner.peak_of_update(largest)
    return rows


def time_translation(
    runners: list[Runner], subset: str, sentences: int, rounds: int, seed: int
) -> list[dict]:
    """Translation speed per system: ``sentences_per_second`` with beam size 5, and ``to_stock``.

    Every translation has the mean reference length of its batch, so that all systems do the same work
    regardless of their parameters.
    """
    batches = translation_batches(runners[0].trainer.task, subset, sentences)
    for runner in runners:
        runner.failure = None  # translation needs no gradients
        runner.seconds(runner.translate, batches[:1])
    jobs = {
        runner.system.name: functools.partial(
            lambda runner, i: runner.seconds(runner.translate, batches), runner
        )
        for runner in runners
    }
    times = interleaved(jobs, rounds, seed, "translation")
    count = sum(len(batch["id"]) for batch in batches)
    return speed_rows(times, [count] * rounds, "sentences_per_second", STOCK.name, failures(runners))


def training_batches(trainer: Trainer, count: int) -> list[dict]:
    """The first batches of training, over several epochs if needed."""
    epochs = trainer.get_train_iterator(1)
    batches: list[dict] = []
    while len(batches) < count:
        batches += islice(epochs.next_epoch_itr(), count - len(batches))
    return batches


def translation_batches(task, subset: str, sentences: int) -> list[dict]:
    """Batches of sentences of ``subset``, evenly spaced in order of length."""
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    dataset.shuffle = False
    indices = dataset.ordered_indices()
    count = min(sentences, len(indices))
    chosen = indices[[i * len(indices) // count for i in range(count)]]
    return [
        dataset.collater([dataset[i] for i in batch])
        for batch in dataset.batch_by_size(chosen, max_tokens=GENERATION_TOKENS)
    ]


def mean_length(batch: dict, padding: int) -> int:
    """Mean length of the references of a batch, excluding the end of sentence."""
    return max(1, round(float(batch["target"].ne(padding).sum(1).sub(1).float().mean())))


def _score_count(batch: dict) -> int:
    source, target = batch["net_input"]["src_tokens"], batch["target"]
    return source.size(0) * (source.size(1) ** 2 + target.size(1) ** 2 + source.size(1) * target.size(1))


def failures(runners: list[Runner]) -> dict[str, str]:
    """The reasons of stopped systems, by name."""
    return {runner.system.name: runner.failure for runner in runners if runner.failure is not None}
