"""Measure speed, memory and accuracy side by side with the peers; prints tables, and writes them as JSON.

    attention    our attention against PyTorch's scaled_dot_product_attention, by length, on the CPU
    kernels      softmax, α-entmax and its special cases: ours against torch and the entmax package
    loss         losses of an output layer: ours against torch's cross-entropy and the entmax package
    products     products with weights in translation, on the CPU: ours against oneDNN's and torch's
    end-to-end   training and translation: ours against fairseq's own transformer
    process      translating from the start of a process to its end, and its memory: ours against CTranslate2
    profile      where the time of a training update of α-entmax goes, and that of translation

Contenders take turns in every round, in random order; numbers are medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from pathlib import Path

from ..checkout import ROOT
from ..command_line import at_most, file_path, option_adder, plain_name, seed
from .options import add_cpu_option, add_data_option, new_parser

INTERRUPTED = "interrupted; what was measured before is in the output file"

BEAMS = (5, 1)  # of translation
# Larger numbers are mistakes.
ROUNDS, UPDATES, SENTENCES, TOKENS, LENGTH = 10_000, 100_000, 1_000_000, 10_000_000, 65_536


def shape(text: str) -> tuple[int, ...]:
    """BxHxTxS as four numbers."""
    sizes = text.split("x")
    if len(sizes) != 4 or not all(
        size.isdecimal() and 0 < len(size) < 10 and int(size) > 0 for size in sizes
    ):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form BxHxTxS, for instance 32x8x128x128")
    return tuple(map(int, sizes))


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")

    def kind(name: str, what: str, rounds: int | None = None):
        own = kinds.add_parser(name, help=what)
        add = option_adder(own)
        add_cpu_option(own)
        add("--threads", at_most(os.cpu_count() or 1), "CPU threads (default: all cores)")
        add("--seed", seed, "random seed (default: 1)", default=1)
        default = "benchmarks/KIND.json in the repository"
        add("--output", file_path, f"measurements (default: {default})", metavar="FILE.json")
        quick = "measure as little as possible, for a first look"
        own.add_argument("--quick", action="store_true", help=quick)
        if rounds:
            add("--rounds", at_most(ROUNDS), f"rounds to measure (default: {rounds})")
        return own, add

    own, add = kind("attention", "our attention against PyTorch's, on the CPU", rounds=11)
    lengths = "queries and keys (default: 32 128 512 1024 2048 4096)"
    add("--lengths", at_most(LENGTH), lengths, nargs="+")
    add("--figure", file_path, "also draw it: .svg, .pdf or .png")
    own.set_defaults(cpu=True)
    _, add = kind("kernels", "softmax, α-entmax and its special cases", rounds=11)
    shapes = "shapes of the scores (default: 128x8x32x32 32x8x128x128 8x8x512x512)"
    add("--shapes", shape, shapes, nargs="+", metavar="BxHxTxS")
    _, add = kind("loss", "losses of an output layer", rounds=11)
    add("--symbols", at_most(1_000_000), "sizes of the vocabulary (default: 8000 32000)", nargs="+")
    kind("products", "products with weights in translation, on the CPU", rounds=11)[0].set_defaults(cpu=True)
    own, add = kind("end-to-end", "training and translation", rounds=7)
    add_systems_options(own)
    sentences = "sentences to translate per round (default: by device and size)"
    add("--sentences", at_most(SENTENCES), sentences)
    _, add = kind("process", "translating in a process of its own", rounds=5)
    add("--model", plain_name, "release whose vocabulary models have (default: de-en)", default="de-en")
    add("--size", str, "size of the model (default: base)", choices=("tiny", "iwslt", "base"), metavar=None)
    add_systems_options(kind("profile", "a training update, and translation")[0])

    args = parser.parse_args(argv)
    args.output = args.output or ROOT / "benchmarks" / f"{args.kind}.json"
    if getattr(args, "figure", None) and args.figure.suffix not in (".svg", ".pdf", ".png"):
        parser.error(f"--figure {args.figure} must end in .svg, .pdf or .png")
    if args.output.suffix != ".json":
        parser.error(f"--output {args.output} must end in .json")
    return args


def add_systems_options(parser) -> None:
    """Add the options of :func:`workshops`, and ``--updates``."""
    add = option_adder(parser)
    add("--corpus", plain_name, "prepared corpus (default: multi30k)", default="multi30k")
    add_data_option(parser)
    sizes, precisions = ("tiny", "iwslt"), ("fp32", "fp16", "bf16")
    add("--size", str, "sizes of the models (default: both)", nargs="+", choices=sizes, metavar=None)
    default = "fp32 on a CPU, all on a GPU"
    add("--precision", str, f"precisions (default: {default})", nargs="+", choices=precisions, metavar=None)
    path = "start from the parameters of this checkpoint of our model or fairseq's transformer"
    add("--path", file_path, path, metavar="CHECKPOINT")
    add("--max-tokens", at_most(TOKENS), "tokens per training batch (default: 2048)", default=2048)
    add("--updates", at_most(UPDATES), "training updates per round (default: by device and size)")


def main(argv=None) -> None:
    """Measure; after each part, write what is known and print it."""
    args = parse_args(argv)
    # The profiler would tell that it starts, stops, and does not know what was there before it.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

    import torch

    from ..benchmarks.machine import heading, record
    from ..io import check_output

    check_output(args.output)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    report = record(args.kind, device, args.seed)
    print(heading(report) + "\n")
    warnings.filterwarnings("ignore", module=r"(torch|fairseq)\b")  # about their own age
    parts = (attention, kernels, loss, products, end_to_end, process, profile)
    {part.__name__.replace("_", "-"): part for part in parts}[args.kind](args, device, report)
    print(args.output)


def finish_part(args: argparse.Namespace, report: dict, tables: str) -> None:
    """Write all measurements so far, then print the tables of the last part."""
    from ..benchmarks.machine import write_measurements

    write_measurements(args.output, report)
    print(tables + "\n", flush=True)


def attention(args: argparse.Namespace, device, report: dict) -> None:
    """Time and memory of our attention beside PyTorch's."""
    import torch

    from ..benchmarks.against_sdpa import SENTENCES, aims, compare, sdpa_table
    from ..benchmarks.attention import verdict_table

    lengths = args.lengths or ([32, 512] if args.quick else list(SENTENCES))
    rounds = args.rounds or (3 if args.quick else 11)
    report.update(rounds=rounds, rows=[])
    print(
        "8 heads of 64 dimensions, float32; training: forward and backward, with the gradient of α learned\n"
    )
    for length in lengths:
        sentences = SENTENCES.get(length, max(1, 2048 // length))
        report["rows"] += compare(length, sentences, rounds, args.seed, torch.float32)
    report["aims"] = aims(report["rows"])
    finish_part(args, report, sdpa_table(report["rows"]) + "\n\n" + verdict_table(report["aims"]))
    if args.figure:
        from ..analysis.plots import save
        from ..benchmarks.figure import time_by_length

        save(time_by_length(report["rows"]), args.figure)
        print(args.figure)


def kernels(args: argparse.Namespace, device, report: dict) -> None:
    """Time, memory and accuracy of the normalizers."""
    from ..benchmarks.accuracy import accuracy, accuracy_tables
    from ..benchmarks.contenders import contenders
    from ..benchmarks.kernels import SHAPES, VARIANCES, kernel_tables, require_memory, time_kernels

    shapes = args.shapes or (SHAPES[:1] if args.quick else SHAPES)
    rounds = args.rounds or (3 if args.quick else 11)
    for size in shapes:
        require_memory(size, device)
    found, left_out = contenders(device)
    report.update(rounds=rounds, left_out=left_out, timings=[], accuracy=[])
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}\n")
    print("×softmax, ×peer: time as a multiple of softmax's, and of what it replaces: entmax_bisect with 50")
    print("steps, entmax15, sparsemax; per head: α from 1.05 to 1.95 over the heads\n")
    for variance in VARIANCES:
        report["accuracy"] += accuracy(found, variance, args.seed, device)
    finish_part(args, report, accuracy_tables(report["accuracy"]))
    for size in shapes:
        for variance in VARIANCES:
            rows = time_kernels(found, size, variance, rounds, args.seed, device)
            report["timings"] += rows
            finish_part(args, report, kernel_tables(rows))


def loss(args: argparse.Namespace, device, report: dict) -> None:
    """Time and memory of losses of an output layer."""
    from ..benchmarks.loss_speed import SYMBOLS, VARIANCES, loss_contenders, loss_tables, time_losses

    rounds = args.rounds or (3 if args.quick else 11)
    report.update(rounds=rounds, timings=[])
    print("forward and backward, without reduction; ×: time as a multiple of the other's\n")
    for symbols in args.symbols or (SYMBOLS[:1] if args.quick else SYMBOLS):
        for variance in VARIANCES:
            rows = time_losses(loss_contenders(), symbols, variance, rounds, args.seed, device)
            report["timings"] += rows
            finish_part(args, report, loss_tables(rows))


def products(args: argparse.Namespace, device, report: dict) -> None:
    """Time of products with weights."""
    from ..benchmarks.products import ROWS, SHAPES, product_table, time_products

    rounds = args.rounds or (3 if args.quick else 11)
    report.update(rounds=rounds, timings=[])
    print("×: time of what is to the left, ours, as a multiple of the other's\n")
    for shape in SHAPES[:1] if args.quick else SHAPES:
        counts = (1, 5, 64) if args.quick else ROWS
        rows = [time_products(*shape, count, rounds, args.seed) for count in counts]
        report["timings"] += rows
        finish_part(args, report, product_table(rows))


def end_to_end(args: argparse.Namespace, device, report: dict) -> None:
    """Speed and memory of training, speed of translation, of many sentences and of one at a time."""
    from ..benchmarks.end_to_end import WORK, build, time_training, time_translation
    from ..benchmarks.one_sentence import sentences_table, time_sentences
    from ..benchmarks.speed import speed_table

    rounds = args.rounds or (2 if args.quick else 7)
    report.update(rounds=rounds, max_tokens=args.max_tokens, training=[], translation=[], one_sentence=[])
    for workshop, where in workshops(args, device, report):
        updates, sentences = (1, 20) if args.quick else WORK[device.type, workshop.size]
        updates, sentences = args.updates or updates, args.sentences or sentences
        runners = build(workshop)
        rows = time_training(runners, updates, rounds, args.seed)
        report["training"] += [{**where, "updates": updates, **row} for row in rows]
        title = f"training, {where['size']}, {where['precision']}, {updates} updates a round"
        finish_part(args, report, title + "\n\n" + speed_table(rows, "tokens_per_second"))
        for beam in BEAMS:
            rows = time_translation(runners, where["subset"], sentences, beam, rounds, args.seed)
            report["translation"] += [{**where, "sentences": sentences, "beam": beam, **row} for row in rows]
            title = f"translation, {where['size']}, {where['precision']}, {sentences} sentences, beam {beam}"
            finish_part(args, report, title + "\n\n" + speed_table(rows, "sentences_per_second"))
        for beam in BEAMS if device.type == "cpu" else ():
            count = min(sentences, 40)
            given = workshop.corpus, where["subset"], count, beam, rounds, args.seed
            rows = time_sentences(runners, *given)
            report["one_sentence"] += [{**where, "sentences": count, "beam": beam, **row} for row in rows]
            title = f"one sentence at a time, from text to text, {where['size']}, beam {beam}"
            finish_part(args, report, title + "\n\n" + sentences_table(rows))


def process(args: argparse.Namespace, device, report: dict) -> None:
    """Time and memory of processes that translate."""
    from ..benchmarks.processes import processes_table, programs, time_processes
    from ..checkout import SHARED
    from ..corpora.readers import read_lines
    from ..releases.named import named_model

    size = args.size or ("tiny" if args.quick else "base")
    rounds, threads = args.rounds or (1 if args.quick else 5), args.threads or os.cpu_count() or 1
    report.update(rounds=rounds, size=size, model=args.model, threads=threads, rows=[])
    sentences = [*read_lines(SHARED / "data" / "toy" / "raw" / "train.de")]
    with programs(named_model(args.model), size, threads) as named:
        for count in (1, 5) if args.quick else (1, 100):
            rows = time_processes(named(sentences[:count]), rounds, args.seed, threads)
            report["rows"] += [{"sentences": count, **row} for row in rows]
            finish_part(args, report, f"{count} sentences, {size}, beam 5\n\n{processes_table(rows)}")


def profile(args: argparse.Namespace, device, report: dict) -> None:
    """Where the time of an update goes and, on a CPU, that of translation."""
    from ..benchmarks.end_to_end import WORK
    from ..benchmarks.peer_systems import ALPHA_ENTMAX, STOCK
    from ..benchmarks.profile import operations_table, profile_tables, profile_translation
    from ..benchmarks.profile import profile as profile_updates

    report.update(profiles=[], translation=[])
    for workshop, where in workshops(args, device, report):
        updates = args.updates or (1 if args.quick else 5)
        found = profile_updates(workshop, updates)
        report["profiles"].append({**where, "updates": updates, **found})
        title = f"{where['size']}, {where['precision']}, {updates} updates"
        finish_part(args, report, title + "\n\n" + profile_tables(found))
        sentences = 5 if args.quick else WORK[device.type, workshop.size][1]
        for system in (STOCK, ALPHA_ENTMAX) if device.type == "cpu" else ():
            found = profile_translation(workshop, system, where["subset"], sentences)
            report["translation"].append({**where, "system": system.name, "sentences": sentences, **found})
            title = f"translation, {system.name}, {where['size']}, {sentences} sentences, beam 5"
            title += f": {1000 * found['seconds']:.0f} ms (with profiler)"
            finish_part(args, report, title + "\n\n" + operations_table(found))


def workshops(args: argparse.Namespace, device, report: dict):
    """One after the other, what builds the systems of each size and precision, and what they are."""
    from .. import models  # noqa: F401  registers the model
    from ..benchmarks.peer_systems import PRECISIONS, Workshop
    from ..corpora import load_corpus
    from ..errors import UserError

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
