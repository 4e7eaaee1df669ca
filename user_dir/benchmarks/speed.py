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
    """Compute speeds, one row per system.

    Args:
        times: by system, seconds of each round.
        work: amount of work in each round, equal for all systems.
        unit: key of the speeds, such as ``tokens_per_second``.
        stock: the system that others are compared with, within each round.
        failures: by system, the reason if it stopped; its speeds are ignored.

    Returns:
        Rows with ``system`` and either ``failure`` or the quartiles of the speed under ``unit`` and
        ``to_stock``, the ratio to the stock model's speed.
    """
    speeds = {name: [done / time for done, time in zip(work, each)] for name, each in times.items()}
    rows = []
    for name, values in speeds.items():
        row: dict = {"system": name}
        if failures and name in failures:
            row["failure"] = failures[name]
        else:
            row[unit] = quartiles(values)
            row["to_stock"] = ratio(values, speeds[stock])
        rows.append(row)
    return rows


def speed_table(rows: list[dict], unit: str) -> str:
    """Rows of :func:`speed_rows` as Markdown, with ``peak_bytes`` if measured."""

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
    return table(["system"], [([row["system"]], row) for row in rows], columns)
