"""What ``scripts/benchmark.py`` measures of models, which have the vocabulary of a corpus or a release."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from .machine import finish_part

BEAMS = (5, 1)  # of translation


def end_to_end(args: argparse.Namespace, device, report: dict) -> None:
    """Speed and memory of training, speed of translation, of many sentences and of one at a time."""
    from .end_to_end import WORK, build, time_training, time_translation
    from .one_sentence import sentences_table, time_sentences
    from .speed import speed_table

    rounds = args.rounds or (2 if args.quick else 7)
    report.update(rounds=rounds, max_tokens=args.max_tokens, training=[], translation=[], one_sentence=[])
    for workshop, where in workshops(args, device, report):
        updates, sentences = (1, 20) if args.quick else WORK[device.type, workshop.size]
        updates, sentences = args.updates or updates, args.sentences or sentences
        runners = build(workshop)
        rows = time_training(runners, updates, rounds, args.seed)
        report["training"] += [{**where, "updates": updates, **row} for row in rows]
        title = f"training, {where['size']}, {where['precision']}, {updates} updates a round"
        finish_part(args.output, report, title + "\n\n" + speed_table(rows, "tokens_per_second"))
        for beam in BEAMS:
            rows = time_translation(runners, where["subset"], sentences, beam, rounds, args.seed)
            report["translation"] += [{**where, "sentences": sentences, "beam": beam, **row} for row in rows]
            title = f"translation, {where['size']}, {where['precision']}, {sentences} sentences, beam {beam}"
            finish_part(args.output, report, title + "\n\n" + speed_table(rows, "sentences_per_second"))
        for beam in BEAMS if device.type == "cpu" else ():
            count = min(sentences, 40)
            given = workshop.corpus, where["subset"], count, beam, rounds, args.seed
            rows = time_sentences(runners, *given)
            report["one_sentence"] += [{**where, "sentences": count, "beam": beam, **row} for row in rows]
            title = f"one sentence at a time, from text to text, {where['size']}, beam {beam}"
            finish_part(args.output, report, title + "\n\n" + sentences_table(rows))


def process(args: argparse.Namespace, device, report: dict) -> None:
    """Time and memory of processes that translate."""
    from ..checkout import SHARED
    from ..corpora.readers import read_lines
    from ..releases.named import named_model
    from .processes import processes_table, programs, time_processes

    size = args.size or ("tiny" if args.quick else "base")
    rounds, threads = args.rounds or (1 if args.quick else 5), args.threads or os.cpu_count() or 1
    report.update(rounds=rounds, size=size, model=args.model, threads=threads, rows=[])
    sentences = [*read_lines(SHARED / "data" / "toy" / "raw" / "train.de")]
    with programs(named_model(args.model), size, threads) as named:
        for count in (1, 5) if args.quick else (1, 100):
            rows = time_processes(named(sentences[:count]), rounds, args.seed, threads)
            report["rows"] += [{"sentences": count, **row} for row in rows]
            finish_part(args.output, report, f"{count} sentences, {size}, beam 5\n\n{processes_table(rows)}")


def profile(args: argparse.Namespace, device, report: dict) -> None:
    """Where the time of an update goes and, on a CPU, that of translation."""
    from .end_to_end import WORK
    from .peer_systems import ALPHA_ENTMAX, STOCK
    from .profile import operations_table, profile_tables, profile_translation
    from .profile import profile as profile_updates

    report.update(profiles=[], translation=[])
    for workshop, where in workshops(args, device, report):
        updates = args.updates or (1 if args.quick else 5)
        found = profile_updates(workshop, updates)
        report["profiles"].append({**where, "updates": updates, **found})
        title = f"{where['size']}, {where['precision']}, {updates} updates"
        finish_part(args.output, report, title + "\n\n" + profile_tables(found))
        sentences = 5 if args.quick else WORK[device.type, workshop.size][1]
        for system in (STOCK, ALPHA_ENTMAX) if device.type == "cpu" else ():
            found = profile_translation(workshop, system, where["subset"], sentences)
            report["translation"].append({**where, "system": system.name, "sentences": sentences, **found})
            title = f"translation, {system.name}, {where['size']}, {sentences} sentences, beam 5"
            title += f": {1000 * found['seconds']:.0f} ms (with profiler)"
            finish_part(args.output, report, title + "\n\n" + operations_table(found))


def workshops(args: argparse.Namespace, device, report: dict):
    """One after the other, what builds the systems of each size and precision, and what they are."""
    from .. import models  # noqa: F401  registers the model
    from ..corpora import load_corpus
    from ..errors import UserError
    from .peer_systems import PRECISIONS, Workshop

    corpus = load_corpus(args.corpus, args.data).require_prepared()
    precisions = args.precision or (PRECISIONS if device.type == "cuda" else PRECISIONS[:1])
    if device.type == "cpu" and tuple(precisions) != ("fp32",):
        raise UserError(f"--precision {' '.join(precisions)} needs a GPU; on a CPU there is fp32")
    sizes = args.size or (["tiny"] if args.quick or args.path else ["tiny", "iwslt"])
    if args.path and len(sizes) > 1:
        raise UserError(f"--path goes with one --size, not {len(sizes)}")
    if not corpus.test_sets:
        raise UserError(
            f"{corpus.folder / 'corpus.yaml'} lists no test set, and the sentences to translate are of one; "
            "choose another --corpus, or add a test set and prepare it again"
        )
    test_set, subset = next(iter(corpus.test_sets.items()))
    report.update(
        corpus=corpus.name,
        test_set=test_set,
        checkpoint=str(args.path) if args.path else None,
        backend=os.environ.get("ENTMAX_BACKEND", "automatic"),
    )
    with tempfile.TemporaryDirectory() as scratch:
        for size in sizes:
            for precision in precisions:
                settings = (args.max_tokens, args.seed, device, Path(scratch), args.path)
                where = {"size": size, "precision": precision, "subset": subset}
                yield Workshop(corpus, size, precision, *settings), where
