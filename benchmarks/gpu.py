#!/usr/bin/env python3
"""Test and measure everything that needs a GPU, the most important first, within nine minutes.

    python benchmarks/gpu.py --section attention

Each section is a few commands with a time limit, without network; what they print is in SECTION.log of the
output folder, too, beside their reports. Training, translation and multi30k need that corpus, prepared.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/graphs tests/decoding tests/attention tests/entmax tests/models"
TRAINING = "benchmarks/end_to_end.py --only training --rounds 3"
TRANSLATION = "benchmarks/end_to_end.py --only translation --rounds 3"
RANDOM = f"{TRAINING} --random-tokens --size base --precision bf16 --max-tokens"
CONFIG = "configs/multi30k-de-en/alpha_entmax.yaml"
# section → seconds that it may take, and its commands
SECTIONS = {
    "tests": (90, [f"-m pytest -q -n logical --maxprocesses 8 -m 'not nightly' {TESTS}"]),
    "models": (90, [f"{RANDOM} 4096", f"{RANDOM} 16384"]),
    "training": (120, [f"{TRAINING} --size tiny --precision fp16 --max-tokens 4096"]),
    "translation": (60, [f"{TRANSLATION} --size iwslt --precision fp16"]),
    "multi30k": (
        110,
        [
            f"scripts/train.py {CONFIG} common.bf16=true checkpoint.save_dir={{scratch}}",
            "scripts/evaluate.py --path {scratch}/checkpoint_best.pt",
        ],
    ),
    "attention": (70, ["benchmarks/attention.py --rounds 7"]),
}


def run(name: str, output: Path) -> str:
    """Run the commands of a section, print what they print, and return how it ended."""
    (limit, commands), log = SECTIONS[name], output / f"{name}.log"
    with log.open("w", encoding="utf-8") as file, tempfile.TemporaryDirectory() as scratch:
        for number, command in enumerate(commands):
            words = [sys.executable, *shlex.split(command.format(scratch=scratch))]
            if words[1].startswith("benchmarks/"):
                words += ["--output", str(output / f"{name}-{number + 1}.json")]
            try:
                subprocess.run(words, cwd=ROOT, stdout=file, stderr=file, check=True, timeout=limit)
                how = "done"
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                how = str(error)
                break
    print(f"## {name}\n\n{log.read_text(encoding='utf-8', errors='replace')}", flush=True)
    return how


def main() -> None:
    """Run the sections one after the other; the exit status is 1 if one did not end well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = f"run this section; may be repeated (default: all: {', '.join(SECTIONS)})"
    parser.add_argument("--section", action="append", choices=SECTIONS, metavar="NAME", help=what)
    folder = ROOT / "runs" / "benchmarks" / "gpu"
    what = "folder of logs and reports"
    parser.add_argument("--output", type=Path, default=folder, metavar="DIR", help=what)
    args = parser.parse_args()
    output = args.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    ended = {name: run(name, output) for name in args.section or SECTIONS}
    print("\n".join(f"{name}: {how}" for name, how in ended.items()))
    sys.exit(any(how != "done" for how in ended.values()))


if __name__ == "__main__":
    main()
