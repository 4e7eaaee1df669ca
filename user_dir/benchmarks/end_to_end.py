"""Speed in practice: training in tokens per second, translation in sentences per second, and memory.

Runs fairseq's trainer and generator in this process. Batches are prepared beforehand, so times exclude data
loading; all systems get the same batches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fairseq.trainer import Trainer

from ..errors import UserError, one_line
from ..translation.search import Search
from ..translation.split_search import BeamSearch
from .ctranslate2_peer import COMPUTE_TYPES, Peer
from .measure import interleaved, peak_memory, seconds
from .peer_systems import ALPHA_ENTMAX, SOFTMAX, STOCK, SYSTEMS, Variant, Workshop
from .speed import speed_rows

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
    searches: dict[tuple[int, bool], BeamSearch] = field(default_factory=dict)

    def updates(self, batches: list[dict]) -> None:
        """One update per batch, as fairseq-train makes it: forward, backward, clipping, Adam."""
        for batch in batches:
            self.trainer.train_step([batch])

    def translate(self, batches: list[dict], beam: int, int8: bool = False) -> None:
        """Translate by beam search, with each batch's mean reference length as output length."""
        self.trainer.model.eval()
        self.trainer.model.int8 = int8
        if (beam, int8) not in self.searches:
            self.searches[beam, int8] = BeamSearch([self.trainer.model], self.trainer.task, Search(beam))
        search = self.searches[beam, int8]
        search.generator.max_len_a = 0
        for batch in batches:
            length = mean_length(batch, self.trainer.task.target_dictionary.pad())
            search.generator.min_len = search.generator.max_len_b = length
            if any(len(best[0]["tokens"]) != length + 1 for best in search(batch)):
                raise AssertionError("a translation does not have the prescribed length")

    def seconds(self, batches: list[dict]) -> float:
        """The time that updates take; NaN once gradients have overflowed, or graphs are not possible."""
        if self.failure is not None:
            return math.nan
        try:
            return seconds(lambda: self.updates(batches))
        except (FloatingPointError, UserError) as error:
            self.failure = one_line(error)
            return math.nan

    def peak_of_update(self, batch: dict) -> int:
        """Bytes allocated during an update, in addition to parameters and optimizer state."""
        self.trainer.zero_grad()
        # With cuda_env, fairseq resets the peak statistics for its log.
        self.trainer.cuda_env = None
        return peak_memory(lambda: self.updates([batch]), self.trainer.device)


def build(workshop: Workshop, systems: Sequence[Variant] = SYSTEMS) -> list[Runner]:
    """Build systems, the stock one first, because the others get its parameters."""
    return [Runner(system, workshop.trainer(system)) for system in systems]


def time_training(runners: list[Runner], updates: int, rounds: int, seed: int) -> list[dict]:
    """Training speed per system: ``tokens_per_second`` (target) and ``peak_bytes`` of the largest update.

    In each round each system makes ``updates`` updates on the same batches; ``to_stock`` is the ratio to the
    stock model's speed, and ``graphs`` how many CUDA graphs a system has that is to have them. A system whose
    gradients overflow, or that can have no graphs that it must have, has ``failure`` instead.
    """
    batches = training_batches(runners[0].trainer, updates * (rounds + 1))
    for runner in runners[1:]:
        runner.trainer.get_train_iterator(1)  # whose batches tell the shapes of CUDA graphs
    for runner in runners:  # on a GPU, graphs of all shapes are recorded before the first round
        runner.seconds(batches if runner.trainer.cuda else batches[:updates])
    blocks = [batches[start : start + updates] for start in range(updates, len(batches), updates)]
    jobs = {
        runner.system.name: functools.partial(lambda runner, i: runner.seconds(blocks[i]), runner)
        for runner in runners
    }
    times = interleaved(jobs, rounds, seed, "training")
    tokens = [sum(batch["ntokens"] for batch in block) for block in blocks]
    largest = max(batches, key=_score_count)
    rows = speed_rows(times, tokens, "tokens_per_second", STOCK.name, failures(runners))
    for runner, row in zip(runners, rows):
        if runner.failure is None:
            row["peak_bytes"] = runner.peak_of_update(largest)
            if (graphs := getattr(runner.trainer, "graphs", None)) is not None:
                row["graphs"] = graphs.recorded
    return rows


def time_translation(
    runners: list[Runner], subset: str, sentences: int, beam: int, rounds: int, seed: int
) -> list[dict]:
    """Translation speed per system: ``sentences_per_second``, and ``to_stock``.

    Every translation has the mean reference length of its batch, so that all systems do the same work
    regardless of their parameters. On a CPU, α-entmax also translates with 8-bit integers. CTranslate2
    translates with the parameters of our softmax model, if it is installed.
    """
    device = runners[0].trainer.device
    batches = translation_batches(runners[0].trainer.task, subset, sentences)
    work: dict[str, Callable[[list[dict]], None]] = {
        runner.system.name: functools.partial(runner.translate, beam=beam) for runner in runners
    }
    if device.type == "cpu":
        learned = next(runner for runner in runners if runner.system == ALPHA_ENTMAX)
        work[f"{ALPHA_ENTMAX.name}, int8"] = functools.partial(learned.translate, beam=beam, int8=True)
    work.update(peers(next(runner for runner in runners if runner.system == SOFTMAX), beam))
    for translate in work.values():
        translate(batches[:1])
    jobs = {
        name: functools.partial(lambda translate, i: seconds(lambda: translate(batches)), translate)
        for name, translate in work.items()
    }
    times = interleaved(jobs, rounds, seed, f"translation, beam {beam}")
    count = sum(len(batch["id"]) for batch in batches)
    return speed_rows(times, [count] * rounds, "sentences_per_second", STOCK.name)


def peers(softmax: Runner, beam: int) -> dict[str, Callable[[list[dict]], None]]:
    """CTranslate2 with the parameters of our softmax model, by name; empty if it is not installed."""
    model, task = softmax.trainer.model, softmax.trainer.task

    def translate(peer: Peer, batches: list[dict]) -> None:
        for batch in batches:
            length = mean_length(batch, task.target_dictionary.pad())
            if any(len(words) != length for words in peer(batch, length)):
                raise AssertionError("a translation does not have the prescribed length")

    try:
        return {
            f"CTranslate2, softmax, {name}": functools.partial(translate, Peer(model, task, beam, name))
            for name in COMPUTE_TYPES[softmax.trainer.device.type]
        }
    except ImportError:
        return {}


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
