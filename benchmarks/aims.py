#!/usr/bin/env python3
"""Compare speed on this CPU with the aims, in one table that marks missed aims; α is learned per head.

python benchmarks/aims.py --threads 1     # some five minutes; data: scripts/prepare.py multi30k
"""

from pathlib import Path

import torch
from attention import compare, on_cpu
from end_to_end import ALPHA_ENTMAX, STOCK, WORK, System, Systems, time_training
from kernels import PER_HEAD, Contender, contenders, time_kernels
from measure import begin, new_parser, table

from user_dir.corpora import load_corpus
from user_dir.entmax import entmax
from user_dir.files import write_json

AMX = torch.cpu.get_capabilities().get("amx_bf16", False)
MOST = {"full": {"forward": 0.7, "training": 0.4}, "causal": {"forward": 0.6, "training": 0.35}}


def main() -> None:
    """Measure, print, and write."""
    parser = new_parser(__doc__, rounds=5)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the corpora (default: data)")
    parser.set_defaults(cpu=True, precision="fp32", max_tokens=2048)
    args = parser.parse_args()
    _, report = begin(args)
    rows = []

    def add(what: str, now: float, bound: str = "", aim: float | None = None) -> None:
        missed = (bound == "at most" and now > aim) or (bound == "at least" and now < aim)
        rows.append(
            {"": what, "now": now, "aim": f"{bound} {aim or ''}", "missed": "missed" if missed else ""}
        )

    compared = [contenders()[0], Contender("ours", PER_HEAD, entmax)]
    shape = [1, 8, 32, 32] if args.quick else [8, 8, 512, 512]
    *_, ours = time_kernels(compared, shape, 1, args.rounds, args.seed, "cpu")
    add("α-entmax, forward and backward, × softmax's time", ours["to_softmax"], "at most", 1.7)
    for length in (32,) if args.quick else (32, 128, 512, 1024, 2048):
        for mask in ("full", "causal") if length >= 512 else ("full",):
            compared = [contender for contender in on_cpu(mask == "causal") if AMX or contender.dtype is None]
            measured = compare(compared, length, 2048 // length, mask, args.rounds, args.seed, "cpu")
            by_system = {(row["attention"], row["measure"]): row for row in measured}
            for measure, most in MOST[mask].items():
                what = f"attention, {measure}, {mask}, n = {length}"
                ours = by_system["α-entmax, α learned", measure]
                aim = ("at most", most) if length >= 128 else ()
                add(f"{what}, × SDPA's time", ours["to_sdpa"], *aim)
                if AMX:
                    half = by_system["α-entmax, α learned, bfloat16", measure]
                    add(f"{what}, bfloat16, × SDPA's", half["to_sdpa"], "at most", 1.0)
                    add(f"{what}, bfloat16, × float32's", half["ms"] / ours["ms"], "at most", 1.0)
    for size in () if args.quick else ("tiny", "iwslt"):
        corpus = load_corpus("multi30k", args.data).require_prepared()
        systems = Systems(corpus.bin, corpus.languages, size, "cpu", args)
        half = [System("bfloat16", (*ALPHA_ENTMAX.flags, "--bf16"))] if AMX else []
        trainers = {system.name: systems.trainer(system) for system in (STOCK, ALPHA_ENTMAX, *half)}
        _, *ours = time_training(trainers, WORK["cpu", size][0], args.rounds, args.seed)
        for row, least in zip(ours, (1.5, 2.5)):
            add(f"training, {size}, {row['system']}, × stock's speed", row["to_stock"], "at least", least)
    if not AMX:
        rows.append({"": "bfloat16", "aim": "no AMX here"})
    write_json(args.output, {**report, "rows": rows})
    machine = report["machine"]
    print(f"{machine['cpu']}, {machine['capability']}, threads: {machine['threads']}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
