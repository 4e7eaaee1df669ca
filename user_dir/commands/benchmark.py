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
import importlib
import os
import warnings

from ..checkout import ROOT
from ..command_line import at_most, file_path, option_adder, plain_name, seed
from .options import add_cpu_option, add_data_option, new_parser

INTERRUPTED = "interrupted; what was measured before is in the output file"

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
    """Add the options of benchmarks of models on a corpus."""
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
    reads = "model" if args.kind in ("end-to-end", "process", "profile") else "tensor"
    sections = importlib.import_module(f"..benchmarks.{reads}_sections", __package__)
    getattr(sections, args.kind.replace("-", "_"))(args, device, report)
    print(args.output)
