"""Speeds of systems relative to the stock model, as rows and as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tables import Column, mebibytes, table
from .measure import quartiles, ratio


def speed_rows(
    times: dict[str, list[float]],
    work: Sequence[float],
    unit: str,
    stock: str,
    failures: dict[str, str] | None = None,
) -> list[dict]:
    """Speeds from the seconds of each round, in which all systems did the same ``work``.

    Returns:
        Rows with ``system`` and either ``failure``, if it stopped, or the quartiles of the speed under
        ``unit`` and ``to_stock``, the ratio to the speed of the system ``stock`` within each round.
    """
    speeds = {name: [done / time for done, time in zip(work, each)] for name, each in times.items()}
    return [
        {"system": name, "failure": failures[name]}
        if failures and name in failures
        else {"system": name, unit: quartiles(values), "to_stock": ratio(values, speeds[stock])}
        for name, values in speeds.items()
    ]


def speed_table(rows: list[dict], unit: str) -> str:
    """Rows of :func:`speed_rows` as Markdown, with ``peak_bytes`` and ``graphs`` if known."""

    def unless_failed(show: Callable[[dict], str]) -> Callable[[dict], str]:
        return lambda row: "" if "failure" in row else show(row)

    columns = [
        Column(
            unit.replace("_per_", "/").replace("second", "s"),
            lambda row: row["failure"] if "failure" in row else f"{row[unit]['median']:.4g}",
        ),
        Column("quartiles", unless_failed(lambda row: f"{row[unit]['q1']:.4g} to {row[unit]['q3']:.4g}")),
        Column("×stock", unless_failed(lambda row: f"{row['to_stock']:.2f}")),
    ]
    if any("peak_bytes" in row for row in rows):
        columns.append(Column("peak of an update, MiB", lambda row: mebibytes(row.get("peak_bytes"), ".0f")))
    if any("graphs" in row for row in rows):
        columns.append(Column("CUDA graphs", lambda row: f"{row['graphs']}" if "graphs" in row else ""))
    return table(["system"], [([row["system"]], row) for row in rows], columns)
