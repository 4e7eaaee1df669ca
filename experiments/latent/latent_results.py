"""Print the tables of the experiments with latent choices from their records, or draw their curves.

python -m experiments.latent.latent_results
python -m experiments.latent.latent_results --figure docs/figures/latent-curves.svg
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from pathlib import Path

from user_dir.command_line import file_path, path_of, run_command
from user_dir.errors import UserError
from user_dir.io import parse_json, read_text
from user_dir.packed_folders import expanded
from user_dir.tables import Column, seed_mean, table

from ._runs import RECORDS, Missing, Plan, new_parser, read_plan, recorded

HERE = Path(__file__).resolve().parent
# file → title, figure of the test set, its header, its scale
EXPERIMENTS = {
    "game": ("Signalling game", "success", "success %", 100),
    "bit_vectors": ("Bit vectors", "negative_elbo", "−ELBO, bits per pixel", 1),
    "semi_supervised": ("Semi-supervised digits", "accuracy", "accuracy %", 100),
}
# system → its name in the figure; the order gives each the same colour in all panels
NAMES = {
    "sparsemax": "sparsemax",
    "topk": "top-k sparsemax",
    "dense": "dense sum",
    "sfe": "SFE",
    "sfe_plus": "SFE+",
    "nvil": "NVIL",
    "gumbel": "Gumbel-softmax",
    "straight_through": "straight-through Gumbel",
    "sparsemap": "SparseMAP",
    "sparsemap_budget": "SparseMAP with a budget",
    "sparsemap_active_set": "SparseMAP, active set",
}


def parse_args(argv=None):
    """Read the command line."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--records", type=path_of, default=RECORDS, metavar="DIR", help="folder of the records")
    add("--figure", type=file_path, metavar="FILE", help="draw the curves into this file")
    return parser.parse_args(argv)


def results(name: str, records: Path) -> str:
    """The table of an experiment: a row per system."""
    title, figure, header, scale = EXPERIMENTS[name]
    plan = read_plan(HERE / f"{name}.yaml")
    columns = [
        seed_mean(header, lambda run: scale * run["test"][figure], ".1f" if scale == 100 else ".3f"),
        Column("calls", lambda runs: f"{statistics.mean(each['calls'] for each in runs):.2f}"),
        Column("calls, mean of training", lambda runs: f"{statistics.mean(map(mean_calls, runs)):.2f}"),
        Column("learning rate", lambda runs: f"{runs[0]['learning_rate']:g}"),
    ]
    rows = [((system,), runs) for system, runs in finished(plan, records / name).items()]
    return f"**{title}**\n\n{table(('system',), rows, columns)}"


def finished(plan: Plan, records: Path) -> dict[str, list[dict]]:
    """The runs of each system, without systems of which a run has no record."""
    found = {}
    for system in plan.systems:
        with contextlib.suppress(Missing):
            found[system] = recorded(plan, system, records)
    return found


def mean_calls(record: dict) -> float:
    """Calls per example, averaged over training."""
    return statistics.mean(each["calls"] for each in record["curve"])


def costs(records: Path) -> str:
    """The table of what an update costs."""
    rows = parse_json(read_text(records / "cost.json", "the record"))["rows"]
    columns = []
    for key, title in {
        "dense": "dense",
        "first": "sparse, first updates",
        "last": "sparse, last updates",
    }.items():
        columns += [
            Column(f"{title}: ms", lambda row, key=key: f"{row[key]['milliseconds']:.1f}"),
            Column("calls", lambda row, key=key: f"{row[key]['calls']:.1f}"),
        ]
    ratio = Column(
        "dense : sparse", lambda row: f"{row['dense']['milliseconds'] / row['last']['milliseconds']:.1f}"
    )
    cells = [((str(row["symbols"]),), row) for row in rows]
    return f"**Cost of an update**\n\n{table(('symbols',), cells, [*columns, ratio])}"


def alignment_costs(records: Path) -> str:
    """The table of what an update costs with a latent alignment."""
    rows = parse_json(read_text(records / "alignment_cost.json", "the record"))["rows"]
    columns = [
        Column("positions per word", lambda row: f"{row['positions']:.1f}" if "positions" in row else "-"),
        Column("ms", lambda row: f"{row['milliseconds']:.0f}"),
        Column("to plain", lambda row: f"{row['to_plain']:.2f}"),
    ]
    cells = [((row["model"],), row) for row in rows]
    return f"**Cost of a latent alignment**\n\n{table(('model',), cells, columns)}"


def translations(records: Path) -> str:
    """The table of the translation of the toy corpus: a row per system."""
    runs: dict[str, list[dict]] = {}
    for path in expanded(records / "toy_alignment" / "*-seed*.json"):
        runs.setdefault(path.stem.split("-seed")[0], []).append(parse_json(read_text(path, "the record")))
    columns = [
        Column("seeds", lambda found: str(len(found))),
        seed_mean("BLEU", "bleu", ".1f"),
        seed_mean("chrF", "chrf", ".1f"),
        seed_mean("bits per token", "bits", ".3f"),
        seed_mean("AER %", lambda run: 100 * run["aer"], ".1f"),
    ]
    cells = [((system,), runs[system]) for system in runs]
    return f"**Translation of the toy corpus**\n\n{table(('system',), cells, columns)}"


def draw(records: Path):
    """The curves of loss and calls of each experiment, means over seeds; returns the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Okabe and Ito's colours, again with dashes
    colours = ("#0072B2", "#E69F00", "#000000", "#CC79A7", "#56B4E9", "#009E73")
    styles = dict(zip(NAMES, itertools.product(("-", "--"), colours)))
    figure, axes = pyplot.subplots(2, len(EXPERIMENTS), figsize=(13, 7), layout="constrained")
    for column, (name, (title, *_)) in enumerate(EXPERIMENTS.items()):
        plan = read_plan(HERE / f"{name}.yaml")
        for system, runs in finished(plan, records / name).items():
            steps = [next(iter(point.values())) for point in runs[0]["curve"]]
            for row, key in enumerate(("loss", "calls")):
                points = zip(*([point[key] for point in run["curve"]] for run in runs))
                means, (line, colour) = [statistics.mean(each) for each in points], styles[system]
                axes[row, column].plot(steps, means, line, color=colour, label=NAMES[system])
        axes[0, column].set_title(title)
        axes[0, column].set_ylabel("training loss")
        axes[1, column].set_ylabel("calls per example")
        axes[1, column].set_yscale("log")
        axes[1, column].set_xlabel(next(iter(runs[0]["curve"][0])))
    handles = {label: line for panel in axes.flat for line, label in zip(*panel.get_legend_handles_labels())}
    names = [name for name in NAMES.values() if name in handles]
    figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=6)
    return figure


def main(argv=None) -> None:
    """Print or draw."""
    args = parse_args(argv)
    if args.figure:
        figure = draw(args.records)
        try:
            figure.savefig(args.figure, metadata={"Date": None} if args.figure.suffix == ".svg" else None)
        except ValueError as error:
            raise UserError(f"--figure {args.figure}: {error}") from None
        return
    tables = [results(name, args.records) for name in EXPERIMENTS]
    tables += [costs(args.records), alignment_costs(args.records), translations(args.records)]
    print("\n\n".join(tables))


if __name__ == "__main__":
    run_command(main)
