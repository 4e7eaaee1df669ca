"""Latent alignment on the toy corpus, beside soft attention with one head at its place and with four heads.

    python -m experiments.latent.toy_alignment experiments/latent/toy_alignment.yaml --work DIR

Trains each system with each seed, translates the test split, and scores BLEU, chrF, likelihood and alignments
by the gold links of data/toy/gold. Runs with a record are skipped; models in --work are used again.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from user_dir.checkout import ROOT
from user_dir.command_line import file_path, path_of, run_command
from user_dir.errors import UserError
from user_dir.io import make_folder, write_json
from user_dir.packed_folders import there
from user_dir.yaml_files import read_yaml_as

from ._runs import RECORDS, new_parser

DIRECTION = ["--user-dir", str(ROOT / "user_dir"), "--source-lang", "de", "--target-lang", "en"]


class Plan(Struct):
    """The file of the trainings: flags of all, those of each system, seeds."""

    train: str
    systems: dict[str, str]
    seeds: list[int]


def parse_args(argv=None):
    """Read the command line."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("plan", type=file_path, metavar="FILE.yaml", help="flags of the trainings")
    add("--work", type=path_of, required=True, metavar="DIR", help="folder of checkpoints and outputs")
    data = ROOT / "data"
    add("--data", type=path_of, default=data, metavar="DIR", help="folder of the corpora (default: data)")
    add("--records", type=path_of, default=RECORDS, metavar="DIR", help="folder of the records")
    return parser.parse_args(argv)


def run(*command) -> str:
    """The output of a command; raises UserError with its last line if it fails."""
    words = [str(word) for word in command]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode:
        raise UserError(f"{words[0]} failed: {done.stderr.strip().split(chr(10))[-1]}")
    return done.stdout


def record(args, plan: Plan, system: str, seed: int, gold: Path) -> dict:
    """Train if there is no checkpoint, and evaluate."""
    import sacrebleu

    binarised, folder = args.data / "toy" / "bin", args.work / f"{system}-seed{seed}"
    checkpoint = folder / "checkpoint_last.pt"
    flags = [*shlex.split(plan.train), *shlex.split(plan.systems[system]), "--seed", seed]
    if not checkpoint.exists():
        common = [*DIRECTION, "--save-dir", folder, "--num-workers", 0, "--no-progress-bar"]
        run("fairseq-train", binarised, *common, *flags)
    model = [binarised, *DIRECTION, "--path", checkpoint, "--max-tokens", 2000, "--num-workers", 0]
    search = ["--gen-subset", "test", "--beam", 5, "--max-len-a", 1.2, "--max-len-b", 10]
    lines = run("fairseq-generate", *model, *search, "--remove-bpe", "sentencepiece").splitlines()
    texts = {}
    for kind in "TD":
        rows = [line.split("\t") for line in lines if line.startswith(f"{kind}-")]
        texts[kind] = [row[-1] for row in sorted(rows, key=lambda row: int(row[0][2:]))]
    script = ROOT / "scripts" / "align.py"
    where = ["--path", checkpoint, "--corpus", "toy", "--data", args.data.resolve(), "--subset", "test"]
    run(sys.executable, script, *where, "--gold", gold, "--output", folder / "alignment")
    found = json.loads((folder / "alignment" / "alignment.json").read_text(encoding="utf-8"))
    candidates = {row["name"]: row["aer"] for row in found["candidates"]}
    return {
        "flags": " ".join(map(str, flags)),
        "bleu": sacrebleu.corpus_bleu(texts["D"], [texts["T"]]).score,
        "chrf": sacrebleu.corpus_chrf(texts["D"], [texts["T"]]).score,
        "bits": likelihood(model),
        "aer": candidates.get("alignment", found["best_head"]["aer"]),
        "aer_of": "alignment" if "alignment" in candidates else found["best_head"]["name"],
    }


def likelihood(model: list) -> float:
    """The negative log-likelihood of the test split in bits per token of the vocabulary."""
    lines = run("fairseq-generate", *model, "--gen-subset", "test", "--score-reference").splitlines()
    scores = [
        float(score) for line in lines if line.startswith("P-") for score in line.split("\t")[1].split()
    ]
    return -sum(scores) / len(scores)


def main(argv=None) -> None:
    """Make the runs that have no record."""
    args = parse_args(argv)
    plan = read_yaml_as(args.plan, Plan)[0]
    make_folder(args.work)
    gold = ROOT / "data" / "toy" / "gold" / "test.pharaoh"
    for seed in plan.seeds:
        for system in plan.systems:
            path = args.records / "toy_alignment" / f"{system}-seed{seed}.json"
            if not there(path):
                write_json(path, record(args, plan, system, seed, gold))
                print(path.stem, path.read_text(encoding="utf-8"), flush=True)


if __name__ == "__main__":
    run_command(main)
