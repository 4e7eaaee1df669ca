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

from ..files import read_json, write_json

logger = logging.getLogger(__name__)


def read_stamp(stamp: Path) -> dict[str, Any]:
    """``{"inputs", "outputs", "report"}`` of a stamp; empty if there is none."""
    return read_json(stamp, "the stamp") if stamp.is_file() else {}


def is_done(stage: str, stamp: Path, inputs: dict[str, Any], force: bool = False) -> bool:
    """Whether a stage was made from exactly these inputs and its files are there; ``force``: never."""
    done = read_stamp(stamp).get("inputs") == json.loads(json.dumps(inputs)) and not changed(stamp)
    if done and not force:
        logger.info("%s: already there", stage)
    return done and not force


def changed(stamp: Path, prefix: str = "") -> list[Path]:
    """The outputs of a stage whose names start with ``prefix`` and that are missing or have another size."""
    sizes = read_stamp(stamp).get("outputs", {}).items()
    outputs = ((stamp.parents[1] / name, size) for name, size in sizes if name.startswith(prefix))
    return [path for path, size in outputs if not (path.is_file() and path.stat().st_size == size)]


def fingerprint(stamp: Path) -> str:
    """A hash of a finished stage's inputs, as an input of the next stage."""
    inputs = json.dumps(read_stamp(stamp)["inputs"], sort_keys=True)
    return hashlib.sha256(inputs.encode()).hexdigest()


@contextmanager
def building(stamp: Path, inputs: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Build a stage: the body fills a folder and the stamp's report; if it raises, the old output stays."""
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
    except OSError as error:
        error.filename = error.filename or target  # a failed write does not name its file
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
