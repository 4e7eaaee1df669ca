#!/usr/bin/env python3
"""Test and measure everything that needs a GPU, in sections, the most important first.

Each section is a process of its own with a time limit, and writes SECTION.json as it goes. What they print is
in gpu.log, too, and what the commands print that they run in commands.log. Together they end within nine
minutes. They need no network and no repository; training and translation need a prepared corpus.

  gpu.py --section paper --system alpha_entmax --output paper

trains, scores and analyses one of the paper's systems, alone for nine minutes; the same command with the
same --output goes on from what that folder holds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import _checkout  # noqa: F401  finds the package

from user_dir.command_line import option_adder, path_of, plain_name, run_command, seed
from user_dir.commands.options import add_data_option, new_parser

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("tests", "models", "training", "translation", "multi30k", "attention")
NAMED = ("paper",)  # not by default
SYSTEMS = ("softmax", "entmax15", "alpha_entmax")


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    what = f"run this section; may be repeated (default: all, in this order: {', '.join(NAMES)}); or paper"
    add("--section", str, what, action="append", choices=NAMES + NAMED, metavar="NAME")
    what = f"system of --section paper: {', '.join(SYSTEMS)} (default: alpha_entmax)"
    add("--system", str, what, choices=SYSTEMS, default="alpha_entmax", metavar="NAME")
    where = "measurements (default: benchmarks/gpu in the repository)"
    add("--output", path_of, where, default=ROOT / "benchmarks" / "gpu")
    add("--corpus", plain_name, "prepared corpus (default: multi30k)", default="multi30k")
    add_data_option(parser)
    add("--seed", seed, "random seed (default: 1)", default=1)
    what = "run the least of everything on the CPU; its times are meaningless"
    parser.add_argument("--rehearse", action="store_true", help=what)
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Run the sections one after the other; the exit status is 1 if one did not end well."""
    args = parse_args(argv)

    from user_dir.benchmarks.gpu_sections import NAMED, SECTIONS
    from user_dir.errors import UserError
    from user_dir.io import check_output

    sections = {**SECTIONS, **NAMED}
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # as in benchmark.py
    require_device(args.rehearse)
    if args.in_this_process:
        for name in args.section:
            run_section(args, name, sections[name][0])
        return
    args.output = args.output.resolve()  # sections run in the repository
    log = args.output / "gpu.log"
    check_output(log)
    args.output.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    words = [sys.executable, os.path.abspath(__file__), "--in-this-process", "--corpus", args.corpus]
    words += ["--output", args.output, "--seed", args.seed, "--system", args.system]
    words += ["--rehearse"] * args.rehearse + (["--data", args.data.resolve()] if args.data else [])
    ended = {
        name: in_time([*words, "--section", name], None if args.rehearse else sections[name][1], log)
        for name in args.section or NAMES
    }
    for name, how in ended.items():
        print(f"{name}: {how}")
    if any(how != "done" for how in ended.values()):
        raise UserError(f"not all sections are done; see {log}")


def require_device(rehearse: bool) -> None:
    """Raise a UserError if there is no GPU and none is pretended."""
    import torch

    from user_dir.errors import UserError

    if not torch.cuda.is_available() and not rehearse:
        raise UserError("torch finds no GPU here; --rehearse goes through the motions on the CPU")


def run_section(args: argparse.Namespace, name: str, section) -> None:
    """Run a section in this process."""
    import warnings

    from user_dir.benchmarks.gpu_job import Job
    from user_dir.benchmarks.machine import heading, record

    output = args.output / f"{name}.json"
    job = Job(args.rehearse, args.seed, args.corpus, args.data, output, {}, args.system)
    job.report.update(record(f"gpu, {name}", job.device, args.seed))
    print(f"## {name}\n\n{heading(job.report)}\n", flush=True)
    warnings.filterwarnings("ignore", module=r"(torch|fairseq)\b")  # about their own age
    section(job)


def in_time(command: list, limit: int | None, log: Path) -> str:
    """How a command ended that may take ``limit`` seconds, or any; what it prints goes to ``log``, too."""
    with open(log, "ab") as file:
        before = file.tell()
        words = [str(word) for word in command]
        # in a session of its own, so that all it starts ends with it
        process = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
        try:
            status = process.wait(limit)
            how = f"ended with status {status}" if status else "done"
        except subprocess.TimeoutExpired:
            how = f"stopped after its {limit} seconds"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    print(log.read_bytes()[before:].decode(errors="replace"), flush=True)
    return how


if __name__ == "__main__":
    run_command(main, "interrupted; what was measured before is in the output folder")
