"""Records of runs that are kept in the repository: all figures and translations, but no models.

The records of an experiment are one archive, ``EXPERIMENT.tar.xz``, with a folder for each run that has the
same layout as the run's own, so both are read by the same code (:mod:`~user_dir.packed_folders`). Absolute
paths are made relative.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserError
from ..io import Busy, atomic_write, durable, locked, name_fault, shown, within
from ..packed_folders import MAX_ARCHIVE, archive_of, read_archive
from .folders import OLD_SETTINGS, SETTINGS, Job, read_json
from .training_stages import ROOT

KEPT = (
    SETTINGS,
    OLD_SETTINGS,
    "result.json",
    "alpha.jsonl",
    "average.heads.json",
    "average.importance.json",
    "search/*.json",
    "evaluation/*.json",
)
MAX_WAIT = 60  # seconds for another process that adds a record


def keep(job: Job) -> None:
    """Add the files to keep to the archive, all at once."""
    within(job.record.parent.parent, job.record)
    files = {}
    for pattern in KEPT:
        for file in sorted(job.folder.glob(pattern)):
            files[file] = _text(job, file)
            if file.parent.name == "evaluation":
                translations = _translations(file)
                files[translations] = _text(job, translations)
    run = job.record.name
    add(job.record.parent, {f"{run}/{file.relative_to(job.folder)}": text for file, text in files.items()})


def add(folder: Path, texts: Mapping[str, str]) -> None:
    """Add files to the archive of a folder, or replace them; equal files give equal archives.

    Args:
        folder: the archive is beside it, with the same name; it need not exist itself.
        texts: by name in the folder.

    Raises:
        UserError: the archive is damaged or would be too large, or another process holds it for a minute.
    """
    archive = archive_of(folder)
    begin = time.monotonic()
    while True:
        try:
            with locked(folder.parent, "adding a record to"):
                files = read_archive(archive) if archive.is_file() else {}
                files.update((name, text.encode("utf-8")) for name, text in texts.items())
                _write(archive, files)
                return
        except Busy:
            if time.monotonic() - begin > MAX_WAIT:
                raise
            time.sleep(0.1)


def _write(path: Path, files: Mapping[str, bytes]) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        # Files of one kind side by side, because they are alike.
        for name in sorted(files, key=lambda name: (name.rpartition("/")[2], name)):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    if content.tell() > MAX_ARCHIVE:
        raise UserError(f"{path} would unpack to over {MAX_ARCHIVE >> 20} MiB; give other --records")
    with atomic_write(path) as beside, beside.open("wb") as file:
        file.write(lzma.compress(content.getvalue(), check=lzma.CHECK_CRC64, preset=6))
        durable(file)


def _text(job: Job, file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        for place in (ROOT, job.folder):
            text = text.replace(json.dumps(f"{place}/", ensure_ascii=False).strip('"'), "")
    return text


def _translations(evaluation: Path) -> Path:
    direction = read_json(evaluation).get("direction")
    target = direction.partition("-")[2] if isinstance(direction, str) else direction
    fault = name_fault(target)
    if fault is not None:
        raise UserError(f"{evaluation} is corrupt: the target language {shown(target)} {fault}; remove it")
    return evaluation.with_name(f"{evaluation.stem}.{target}")
