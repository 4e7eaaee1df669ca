"""Text files by subset, and the progress of what is written to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tqdm import tqdm


def write_rows(
    folder: Path,
    subset: str,
    endings: Sequence[str],
    rows: Iterable[Sequence[str]],
    held_out: int | None = None,
) -> dict[str, int]:
    """Write rows, such as the two sides of a pair, to a file ``SUBSET.ENDING`` for each of their lines.

    Creates the folder if needed. Every ``held_out``-th row goes to ``valid`` instead. Returns the number of
    rows by subset.
    """
    folder.mkdir(exist_ok=True)
    counts = dict.fromkeys([subset, "valid"] if held_out else [subset], 0)
    with ExitStack() as stack:
        files = {
            name: [
                stack.enter_context((folder / f"{name}.{ending}").open("w", encoding="utf-8", newline="\n"))
                for ending in endings
            ]
            for name in counts
        }
        for number, row in enumerate(rows, start=1):
            name = "valid" if held_out and number % held_out == 0 else subset
            counts[name] += 1
            for file, line in zip(files[name], row):
                file.write(line + "\n")
    return counts


def progress(items: Iterable, doing: str, unit: str = " pairs") -> Iterator:
    """The items, with a progress bar if there is a terminal."""
    yield from tqdm(items, desc=doing, unit=unit, unit_scale=True, disable=None)
