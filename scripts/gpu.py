#!/usr/bin/env python3
"""Run all tests and benchmarks that need a GPU, and print a table of results and targets.

First the tests of the kernels, on the GPU instead of in Triton's interpreter; then attention alone, compared
with softmax and with other implementations of α-entmax; then training of base models on random tokens.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import _checkout  # noqa: F401  finds the package

from user_dir.command_line import at_most, file_path, option_adder, run_command, seed
from user_dir.commands.options import new_parser

ROOT = Path(__file__).resolve().parents[1]
SMALL = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-layers 1 --encoder-attention-heads 2 "
SMALL += "--decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-layers 1 --decoder-attention-heads 2"
TESTS = ("tests/attention", "tests/entmax", "tests/modules", "tests/models")


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    lengths = "sequence lengths (default: 32 64 128 256 512 1024 4096)"
    add("--lengths", at_most(65_536), lengths, nargs="+")
    add("--rounds", at_most(10_000), "rounds to measure (default: 11)", default=11)
    add("--updates", at_most(100_000), "training updates per round (default: 20)", default=20)
    add("--seed", seed, "random seed (default: 1)", default=1)
    output = ROOT / "benchmarks" / "gpu.json"
    where = "measurements (default: benchmarks/gpu.json in the repository)"
    add("--output", file_path, where, default=output, metavar="FILE.json")
    dtypes = ("bfloat16", "float16", "float32")
    what = "of attention and models (default: %(default)s)"
    parser.add_argument("--dtype", choices=dtypes, default="bfloat16", help=what)
    parser.add_argument("--no-tests", action="store_true", help="measure only, without tests")
    what = "run the least of everything on the CPU; its times are meaningless"
    parser.add_argument("--rehearse", action="store_true", help=what)
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Test, measure, print, write; the exit status is 1 where a test fails."""
    args = parse_args(argv)

    import torch

    import user_dir.models  # noqa: F401  registers the model
    from user_dir.benchmarks import random_tokens
    from user_dir.benchmarks.attention import (
        CAUSAL_SENTENCES,
        SENTENCES,
        alpha_error,
        attention_table,
        time_attention,
        verdict_table,
        verdicts,
    )
    from user_dir.benchmarks.machine import heading, record, write_measurements
    from user_dir.benchmarks.speed import speed_table
    from user_dir.errors import UserError
    from user_dir.io import check_output

    if not torch.cuda.is_available() and not args.rehearse:
        raise UserError("torch finds no GPU here; --rehearse goes through the motions on the CPU")
    device = torch.device("cpu" if args.rehearse else "cuda")
    check_output(args.output)
    report = record("gpu", device, args.seed)
    print(heading(report) + "\n", flush=True)
    rounds = 1 if args.rehearse else args.rounds
    passed = None if args.no_tests else run_tests(args.rehearse)
    name = "float32" if args.rehearse else args.dtype
    dtype = getattr(torch, name)
    report.update(rounds=rounds, dtype=name, tests_passed=passed, attention=[])
    rows = report["attention"]
    for causal, usual in ((False, SENTENCES), (True, CAUSAL_SENTENCES)):
        for length in args.lengths or ([4] if args.rehearse else list(usual)):
            sentences = 1 if args.rehearse else usual.get(length, max(1, 16384 // length))
            rows += time_attention(length, sentences, rounds, args.seed, device, dtype, causal=causal)
            write_measurements(args.output, report)  # what is measured stays, should the next step fail
    error = alpha_error(4 if args.rehearse else 128, args.seed, device, dtype)
    report.update(alpha_error=error)
    write_measurements(args.output, report)
    print(attention_table(rows) + "\n", flush=True)

    small = {"max_tokens": 60, "flags": SMALL} if args.rehearse else {}
    updates = 1 if args.rehearse else args.updates
    speeds = random_tokens.time_training(device, dtype, updates, rounds, args.seed, **small)
    to_stock = {row["system"]: row["to_stock"] for row in speeds}[random_tokens.OURS]
    aims = verdicts(rows, error, None if args.rehearse else to_stock)
    report.update(training=speeds, aims=aims)
    write_measurements(args.output, report)
    print("training, base models, random tokens\n\n" + speed_table(speeds, "tokens_per_second") + "\n")
    print(verdict_table(aims))
    print(args.output)
    if passed is False:
        sys.exit(1)


def run_tests(rehearse: bool) -> bool:
    """Whether the tests pass; their output is shown."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    chosen = ["tests/attention/test_alpha.py"] if rehearse else TESTS
    command = [sys.executable, "-m", "pytest", "-q", "-nlogical", "--maxprocesses=8", *chosen]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


if __name__ == "__main__":
    run_command(main, "interrupted; what was measured before is in the output file")
