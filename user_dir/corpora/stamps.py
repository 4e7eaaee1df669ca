"""Stamps record that the output of a stage is complete.

A stage builds in a scratch folder of the corpus, moves the finished files to their places and writes its
stamp, ``text/stamp.json`` or ``bin/stamp.json``, last. An interruption at any time leaves no stamp, so the
next run builds the stage again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import write_json

logger = logging.getLogger(__name__)


def read_stamp(stamp: Path) -> dict[str, Any]:
    """``{"inputs", "outputs", "report"}`` of a stamp; empty if there is none."""
    return json.loads(stamp.read_text(encoding="utf-8")) if stamp.is_file() else {}


def is_done(stage: str, stamp: Path, inputs: dict[str, Any], force: bool = False) -> bool:
    """Whether a stage was made from exactly these inputs and its files are there; ``force``: never."""
    record, folder = read_stamp(stamp), stamp.parents[1]
    if force or record.get("inputs") != json.loads(json.dumps(inputs)):
        return False
    sizes = record["outputs"].items()
    done = all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes)
    if done:
        logger.info("%s: already there", stage)
    return done


def fingerprint(stamp: Path) -> str:
    """A hash of a finished stage's inputs, as an input of the next stage."""
    inputs = json.dumps(read_stamp(stamp)["inputs"], sort_keys=True)
    return hashlib.sha256(inputs.encode()).hexdigest()


@contextmanager
def building(stamp: Path, inputs: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Build a stage: the body fills a folder, and a report for the stamp; if it raises, all stays."""
    target = stamp.parents[1]
    prefix = f"{stamp.parent.name}.part-"
    for leftover in target.glob(f"{prefix}*"):  # left by an interrupted run
        shutil.rmtree(leftover, ignore_errors=True)
    scratch, report = Path(tempfile.mkdtemp(prefix=prefix, dir=target)), {}
    try:
        yield scratch, report
        replaced = read_stamp(stamp).get("outputs", {})
        stamp.unlink(missing_ok=True)
        files = sorted(path for path in scratch.rglob("*") if path.is_file())
        outputs = {path.relative_to(scratch).as_posix(): path.stat().st_size for path in files}
        for name in replaced.keys() - outputs.keys():
            (target / name).unlink(missing_ok=True)
        for name in outputs:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(scratch / name, target / name)  # folders may be links to another disk
        write_json(stamp, {"inputs": inputs, "outputs": outputs, "report": report})
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
