"""What an update of the signalling game costs with sparse and with dense sums, for 16 to 4096 symbols.

    OMP_NUM_THREADS=1 python -m experiments.latent.cost experiments/latent/game.yaml

Prints processor time and calls of the receiver per update: of the dense sum, and of sparsemax at the start
and after --updates updates, when its support has become small. The times are of whole updates.
"""

from __future__ import annotations

import statistics
import time

import torch

from user_dir.command_line import file_path, positive, run_command
from user_dir.io import write_json

from ._runs import RECORDS, new_parser, read_plan
from .game import Play

SIZES = (16, 64, 256, 1024, 4096)


def parse_args(argv=None):
    """Read the command line."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("plan", type=file_path, metavar="FILE.yaml", help="settings of the game")
    add("--updates", type=positive, default=1000, metavar="N", help="updates of sparsemax (default: 1000)")
    add("--repeats", type=positive, default=20, metavar="N", help="updates that are timed (default: 20)")
    default = RECORDS / "cost.json"
    add("--output", type=file_path, default=default, metavar="FILE", help=f"record (default: {default.name})")
    return parser.parse_args(argv)


def measured(play: Play, repeats: int) -> dict:
    """Medians of milliseconds of processor time and mean calls per round, over some updates."""
    times, calls = [], []
    for _ in range(repeats):
        begin = time.process_time()
        calls.append(play.update()[1])
        times.append(1e3 * (time.process_time() - begin))
    return {"milliseconds": statistics.median(times), "calls": statistics.mean(calls)}


def cost(settings: dict, symbols: int, updates: int, repeats: int) -> dict:
    """The costs with one number of symbols."""
    settings = {**settings, "symbols": symbols}
    torch.manual_seed(1)
    dense = Play(settings, {"method": "dense"}, 0.005, 1)
    measured(dense, 2)  # the first updates allocate memory
    found = {"symbols": symbols, "dense": measured(dense, repeats)}
    del dense
    torch.manual_seed(1)
    sparse = Play(settings, {"method": "sparsemax"}, 0.005, 1)
    found["first"] = measured(sparse, repeats)
    for _ in range(updates - 2 * repeats):
        sparse.update()
    found["last"] = measured(sparse, repeats)
    return found


def main(argv=None) -> None:
    """Measure, print and record."""
    args = parse_args(argv)
    torch.set_num_threads(1)
    settings = read_plan(args.plan).settings
    rows = []
    for symbols in SIZES:
        rows.append(cost(settings, symbols, args.updates, args.repeats))
        print(rows[-1], flush=True)
    versions = {"torch": torch.__version__, "threads": 1}
    write_json(args.output, {"settings": settings, "updates": args.updates, **versions, "rows": rows})


if __name__ == "__main__":
    run_command(main)
