"""Stamps record that the output of a stage is complete.

A stage builds in a scratch folder, moves the finished files next to the stamp and writes the stamp last. An
interruption at any time leaves no stamp, so the next run builds the stage again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..io import MAX_JSON, name_fault, parse_json, read_text, within

logger = logging.getLogger(__name__)


@dataclass
class Build:
    """A stage under construction: its scratch folder, and a report to store in the stamp."""

    folder: Path
    report: dict[str, Any] = field(default_factory=dict)


def read_stamp(stamp: Path) -> dict[str, Any]:
    """``{"inputs", "outputs", "report"}`` of a stamp; empty if missing, invalid or of files elsewhere."""
    try:
        record = parse_json(read_text(stamp, "the stamp", most=MAX_JSON))
    except (OSError, ValueError):
        return {}
    parts = ("inputs", "outputs", "report")
    whole = isinstance(record, dict) and all(isinstance(record.get(name), dict) for name in parts)
    # Files that a stamp lists are removed when the stage is built again.
    plain = whole and not any(name_fault(name, folders=True, longest=255) for name in record["outputs"])
    return record if plain else {}


def is_whole(stamp: Path, inputs: dict[str, Any]) -> bool:
    """Whether the stamp was made from exactly these inputs and all files it lists have their size."""
    record = read_stamp(stamp)
    return record.get("inputs") == as_json(inputs) and all(
        (stamp.parent / name).is_file() and (stamp.parent / name).stat().st_size == size
        for name, size in record.get("outputs", {}).items()
    )


def is_done(stage: str, stamp: Path, inputs: dict[str, Any], force: bool = False) -> bool:
    """Whether a stage need not run, which is then logged; ``force`` runs it anyway."""
    done = not force and is_whole(stamp, inputs)
    if done:
        logger.info("%s: already there", stage)
    return done


def fingerprint(stamp: Path) -> str:
    """A hash of a finished stage's inputs, as an input of the next stage."""
    inputs = json.dumps(read_stamp(stamp)["inputs"], sort_keys=True)
    return hashlib.sha256(inputs.encode()).hexdigest()


@contextmanager
def building(stamp: Path, inputs: dict[str, Any], root: Path | None = None) -> Iterator[Build]:
    """Build a stage: the body fills ``Build.folder``; if it raises, the previous files are kept.

    Raises UserError if links would lead to writing outside ``root`` (default: the stamp's folder).
    """
    target = within(root or stamp.parent, stamp.parent)
    target.mkdir(parents=True, exist_ok=True)
    prefix = f"{stamp.stem}.part-"
    for leftover in target.glob(f"{prefix}*"):  # left by an interrupted run
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=target))
    try:
        build = Build(scratch)
        yield build
        replaced = read_stamp(stamp).get("outputs", {})
        stamp.unlink(missing_ok=True)
        files = sorted(path for path in scratch.rglob("*") if path.is_file())
        outputs = {path.relative_to(scratch).as_posix(): path.stat().st_size for path in files}
        for name in [*replaced, *outputs]:
            within(target, (target / name).parent)
        for name in replaced.keys() - outputs.keys():
            (target / name).unlink(missing_ok=True)
        for name in outputs:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).replace(target / name)
        record = {"inputs": inputs, "outputs": outputs, "report": build.report}
        unfinished = scratch / "stamp"
        unfinished.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        unfinished.replace(stamp)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def as_json(value: Any) -> Any:
    """Convert a value as by writing and reading JSON, for comparison with a stamp."""
    return json.loads(json.dumps(value))
