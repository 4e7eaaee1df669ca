"""Reports as tables to read; Markdown, so that they can be pasted into the docs."""

from __future__ import annotations

from itertools import groupby

from tabulate import tabulate

from .accuracy import ALPHAS
from .kernels import MEASURES

MIB = 2**20


def kernel_tables(rows: list[dict]) -> str:
    """For each shape and variance: ms of each measure, as a multiple of softmax, and of the peer."""
    headers = ["implementation", "α", "forward, ms", "×softmax", "×peer", "+ backward, ms", "×softmax"]
    headers += ["×peer", "+ dα, ms", "×softmax", "×peer", "peak, MiB"]
    tables = []
    for (shape, variance), group in groupby(rows, key=lambda row: (tuple(row["shape"]), row["variance"])):
        lines = []
        for (name, alpha), cells in groupby(group, key=lambda row: (row["implementation"], row["alpha"])):
            by_measure = {cell["measure"]: cell for cell in cells}
            line = [name, alpha]
            for measure in MEASURES:
                line += _times(by_measure.get(measure))
            peak = next(cell["peak_bytes"] for cell in by_measure.values() if "peak_bytes" in cell)
            lines.append([*line, f"{peak / MIB:.1f}"])
        title = f"scores {' × '.join(map(str, shape))} from N(0, {variance:g})"
        tables.append(f"{title}\n\n{_table(lines, headers)}")
    return "\n\n".join(tables)


def _times(cell: dict | None) -> list[str]:
    if cell is None:
        return ["", "", ""]
    peer = "" if cell["to_peer"] is None else f"{cell['to_peer']:.3g}"
    return [f"{1000 * cell['seconds']['median']:.3g}", f"{cell['to_softmax']:.3g}", peer]


def accuracy_tables(rows: list[dict]) -> str:
    """For each variance: greatest error of a weight, and of the gradient of α, at each α."""
    tables = []
    for what, title in (
        ("weights", "greatest error of a weight"),
        ("alpha_gradient", "greatest error of the gradient of α, over the greatest such gradient"),
    ):
        for variance in sorted({row["variance"] for row in rows}):
            lines: dict[tuple, dict] = {}
            for row in rows:
                if row["variance"] == variance and row[what] is not None:
                    key = (row["implementation"], row["alpha_given"])
                    lines.setdefault(key, {})[row["alpha"]] = f"{row[what]:.1e}".replace("nan", "NaN")
            table = [[*key, *(cells.get(alpha, "") for alpha in ALPHAS)] for key, cells in lines.items()]
            headers = ["implementation", "α", *(f"α = {alpha:g}" for alpha in ALPHAS)]
            tables.append(f"{title}, scores from N(0, {variance:g})\n\n{_table(table, headers)}")
    return "\n\n".join(tables)


def speed_table(rows: list[dict], unit: str) -> str:
    """Speed of each system, and its peak of memory where it was taken."""
    memory = any("peak_bytes" in row for row in rows)
    headers = ["system", unit.replace("_per_", "/").replace("second", "s"), "quartiles", "×stock"]
    lines = []
    for row in rows:
        if "failure" in row:
            lines.append([row["system"], row["failure"]])
            continue
        speed = row[unit]
        line = [row["system"], f"{speed['median']:.4g}", f"{speed['q1']:.4g} to {speed['q3']:.4g}"]
        line.append(f"{row['to_stock']:.2f}")
        if memory:
            line.append(f"{row['peak_bytes'] / MIB:.0f}")
        lines.append(line)
    return _table(lines, [*headers, "peak of an update, MiB"] if memory else headers)


def profile_tables(found: dict) -> str:
    """Phases and operations of an update."""
    total = found["seconds"]
    phases = [[n, f"{1000 * s:.1f}", f"{100 * s / total:.0f} %"] for n, s in found["phases"].items()]
    operations = [
        [o["operation"], f"{o['calls']:g}", f"{1000 * o['seconds']:.1f}", f"{100 * o['share']:.1f} %"]
        for o in found["operations"]
    ]
    return (
        f"one update of α-entmax: {1000 * total:.0f} ms, with the profiler\n\n"
        + _table(phases, ["phase", "ms", "of the update"])
        + "\n\n"
        + _table(operations, ["operation", "calls", "own ms", "share"])
    )


def _table(lines: list[list], headers: list[str]) -> str:
    return tabulate(lines, headers=headers, tablefmt="github", disable_numparse=True)
