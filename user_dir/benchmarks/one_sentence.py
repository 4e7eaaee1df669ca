"""One sentence at a time, from text to text: the time it takes, and the least that memory allows.

Beside CTranslate2, with the same preprocessing. Each translation is as long as its reference.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch

from ..corpora import Corpus
from ..corpora.dictionary import Dictionary
from ..corpora.new_text import NewText
from ..decoding.from_model import weights_of
from ..decoding.native import Engine
from ..decoding.settings import Settings
from ..decoding.weights import Linear, Weights
from ..tables import Column, table
from ..translation.text import join_pieces
from .ctranslate2_peer import Peer
from .end_to_end import Runner
from .measure import interleaved, quartiles
from .peer_systems import ALPHA_ENTMAX, SOFTMAX

Translate = Callable[[list[str], int], Iterable[str]]
"""From the pieces of a sentence to as many pieces."""


def time_sentences(
    runners: list[Runner], corpus: Corpus, subset: str, sentences: int, beam: int, rounds: int, seed: int
) -> list[dict]:
    """Milliseconds that sentences of ``subset``, evenly spaced, take one at a time on a CPU.

    Returns:
        Rows with ``system``, the quartiles over rounds of the ``milliseconds`` per sentence, and of ours
        ``floor``: the milliseconds that reading its weights and caches takes.
    """
    learned, softmax = (
        next(runner for runner in runners if runner.system == system) for system in (ALPHA_ENTMAX, SOFTMAX)
    )
    task, weights = learned.trainer.task, weights_of(learned.trainer.model)
    new_text = NewText(corpus, task.cfg.source_lang)
    task.load_dataset(subset)
    chosen = [task.dataset(subset)[i * len(task.dataset(subset)) // sentences] for i in range(sentences)]
    given = [(_text(task, each["source"]), len(each["target"]) - 1) for each in chosen]
    systems: dict[str, Translate] = {
        ALPHA_ENTMAX.name: _ours(task, Engine(weights), beam),
        f"{ALPHA_ENTMAX.name}, int8": _ours(task, Engine(weights, int8=True), beam),
    }
    systems |= _peers(softmax, beam)

    def run(translate: Translate, _: int) -> float:
        begin = time.perf_counter()
        for text, length in given:
            (pieces,) = new_text.pieces([text])
            join_pieces(" ".join(translate(pieces.split(), length)))
        return 1000 * (time.perf_counter() - begin) / len(given)

    jobs = {name: functools.partial(run, translate) for name, translate in systems.items()}
    for job in jobs.values():
        job(0)
    times = interleaved(jobs, rounds, seed, f"one sentence, beam {beam}")
    rows = [{"system": name, "milliseconds": quartiles(each)} for name, each in times.items()]
    source, target = (
        round(statistics.mean(len(each[side]) for each in chosen)) for side in ("source", "target")
    )
    for row, size in zip(rows, (4, 1)):
        read = bytes_of_a_step(weights, size, source, target / 2, beam)
        row["floor"] = target * 1000 * read / reading_speed(read)
    return rows


def sentences_table(rows: list[dict]) -> str:
    """Rows of :func:`time_sentences` as Markdown."""
    columns = [
        Column("ms a sentence", lambda row: f"{row['milliseconds']['median']:.3g}"),
        Column("quartiles", lambda row: "{q1:.3g} to {q3:.3g}".format(**row["milliseconds"])),
        Column("memory alone", lambda row: f"{row['floor']:.3g}" if "floor" in row else ""),
    ]
    return table(["system"], [([row["system"]], row) for row in rows], columns)


def bytes_of_a_step(weights: Weights, size: int, source: int, history: float, beam: int) -> float:
    """Bytes that a step of the decoder reads for one sentence.

    Args:
        weights: of the model.
        size: bytes of a weight in a linear layer.
        source: tokens of the sentence.
        history: tokens of the translation so far.
        beam: hypotheses, each with a history of its own.
    """
    matrices: list[Linear] = [weights.output]
    rows = 0.0
    for layer in weights.decoder.layers:
        own, context = layer.attention, layer.context
        matrices += [own.query, own.key, own.value, own.out, layer.fc1, layer.fc2]
        rows += beam * history * 2 * len(own.key.weight)
        if context is not None:
            matrices += [context.query, context.out]
            rows += source * 2 * len(context.key.weight)
    return size * sum(each.weight.size for each in matrices) + 4 * rows


def reading_speed(size: float) -> float:
    """Bytes per second at which so many are read again and again, from whatever cache they fit into."""
    numbers = torch.ones(max(1, int(size) // 4))
    seconds = []
    for _ in range(30):
        begin = time.perf_counter()
        numbers.sum()
        seconds.append(time.perf_counter() - begin)
    return size / min(seconds)


def _text(task, tokens: torch.Tensor) -> str:
    return join_pieces(task.source_dictionary.string(tokens))


def _ours(task, engine: Engine, beam: int) -> Translate:
    words, end = Dictionary(task.source_dictionary.symbols[4:]), task.target_dictionary.eos()

    def translate(pieces: list[str], length: int) -> Iterable[str]:
        tokens = np.array([*map(words.index, pieces), end])
        settings = Settings(
            beam=beam,
            symbols=len(task.target_dictionary),
            longest=length,
            shortest=length,
            begin=end,
            end=end,
            padding=task.target_dictionary.pad(),
            suppressed=(),
            unknown=task.target_dictionary.unk(),
            penalty=0.0,
            normalised=True,
            length_penalty=1.0,
        )
        ((best, *_),) = engine.search(tokens, np.array([len(tokens)]), settings)
        assert len(best["tokens"]) == length + 1
        return map(task.target_dictionary.symbols.__getitem__, best["tokens"][:-1].tolist())

    return translate


def _peers(softmax: Runner, beam: int) -> dict[str, Translate]:
    """CTranslate2 with the parameters of our softmax model; empty if it is not installed."""
    model, task = softmax.trainer.model, softmax.trainer.task
    try:
        made = {name: Peer(model, task, beam, name) for name in ("float32", "int8")}
    except ImportError:
        return {}

    def translate(peer: Peer, pieces: list[str], length: int) -> Iterable[str]:
        (words,) = peer.translate([pieces], length)
        assert len(words) == length
        return words

    return {
        f"CTranslate2, softmax, {name}": functools.partial(translate, peer) for name, peer in made.items()
    }
