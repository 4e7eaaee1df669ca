"""Records of runs that are kept in the repository: all figures and translations, but no models.

A record has the same layout as the folder of the run, so both are read by the same code. Larger files are
compressed, with the extension ``.bz2``; absolute paths are made relative.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import UserError
from ..io import PACKED, name_fault, shown, within, write_packed, write_text
from .folders import ASKED, Job, read_json
from .training import ROOT

COMPRESSED = ("alpha.jsonl", "average.heads.json", "average.importance.json", "search/*.json")
KEPT = (ASKED, "evaluation/*.json")


def keep(job: Job) -> None:
    """Copy the files to keep; result.json is copied last and marks the record as complete."""
    for pattern in COMPRESSED:
        for file in sorted(job.folder.glob(pattern)):
            _copy(job, file, compressed=True)
    for pattern in KEPT:
        for file in sorted(job.folder.glob(pattern)):
            _copy(job, file)
            if file.parent.name == "evaluation":
                _copy(job, _translations(file), compressed=True)
    _copy(job, job.result)


def _copy(job: Job, file: Path, compressed: bool = False) -> None:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        for place in (ROOT, job.folder):
            text = text.replace(json.dumps(f"{place}/", ensure_ascii=False).strip('"'), "")
    record = within(job.record, job.record / file.relative_to(job.folder))
    if compressed:
        write_packed(record.with_name(record.name + PACKED), text)
    else:
        write_text(record, text)


def _translations(evaluation: Path) -> Path:
    direction = read_json(evaluation).get("direction")
    target = direction.partition("-")[2] if isinstance(direction, str) else direction
    fault = name_fault(target)
    if fault is not None:
        raise UserError(f"{evaluation} is corrupt: the target language {shown(target)} {fault}; remove it")
    return evaluation.with_name(f"{evaluation.stem}.{target}")
