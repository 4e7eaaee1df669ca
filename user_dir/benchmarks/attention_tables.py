"""The attention benchmark as tables to read."""

from __future__ import annotations

from tabulate import tabulate

from .attention import EFFICIENT, MEASURES

MIB = 2**20


def attention_table(rows: list[dict]) -> str:
    """For each length and contender: ms of each measure, as a multiple of SDPA's, and peak memory."""
    headers = ["n", "sentences", "attention", "α"]
    for title in ("forward, ms", "training, ms", "step, ms"):
        headers += [title, "×SDPA"]
    base = {row["length"]: row["seconds"] for row in rows if row["implementation"] == EFFICIENT}
    lines = []
    for row in rows:
        line = [row["length"], row["sentences"], row["implementation"], row["alpha"]]
        for measure in MEASURES:
            line += _cells(row, measure, base.get(row["length"], {}))
        line.append(f"{row['peak_bytes'] / MIB:.1f}" if "peak_bytes" in row else "")
        lines.append(line)
    return _table(lines, [*headers, "peak of training, MiB"])


def _cells(row: dict, measure: str, base: dict) -> list[str]:
    if measure in row["failures"]:
        return [row["failures"][measure].split(":")[0], ""]
    if measure not in row["seconds"]:
        return ["", ""]
    seconds = row["seconds"][measure]["median"]
    multiple = f"{seconds / base[measure]['median']:.2f}" if measure in base else ""
    return [f"{1000 * seconds:.3g}", multiple]


def verdict_table(aims: list[dict]) -> str:
    """Each aim, what it allows, what was measured, and whether that is enough."""
    lines = [
        [aim["aim"], f"{aim['at most']:.3g}", f"{aim['measured']:.3g}", "yes" if aim["reached"] else "no"]
        for aim in aims
    ]
    return _table(lines, ["aim", "at most", "measured", "reached"])


def _table(lines: list[list], headers: list[str]) -> str:
    return tabulate(lines, headers=headers, tablefmt="github", disable_numparse=True)
