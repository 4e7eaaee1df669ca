"""A run that fails for any reason does not stop the others."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from user_dir.errors import UserError
from user_dir.experiments import running


def job(folder: Path, label: str) -> SimpleNamespace:
    (folder / label).mkdir()
    failure = folder / label / "failed.txt"
    return SimpleNamespace(
        run=SimpleNamespace(label=label, search=None), failure=failure, lock=lambda: nullcontext(())
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UserError("no data; prepare them"), "no data; prepare them"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (RuntimeError("out of\nmemory"), "out of memory"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_failure_is_reported_and_the_others_are_run(tmp_path, monkeypatch, error, reason):
    first, second = job(tmp_path, "first-seed1"), job(tmp_path, "second-seed1")
    made = []

    def train(each, descriptors, workers):
        if each is first:
            raise error

    monkeypatch.setattr(running, "is_recorded", lambda each: each in made)
    monkeypatch.setattr(running, "claim", lambda each: None)
    monkeypatch.setattr(running.training_stages, "train", train)
    monkeypatch.setattr(running.training_stages, "average", lambda each: None)
    for stage in ("evaluate", "heads", "importance", "conclude"):
        monkeypatch.setattr(running.evaluating, stage, lambda each: None)
    monkeypatch.setattr(running.evaluating, "loss", lambda each, descriptors: None)
    monkeypatch.setattr(running.records, "keep", made.append)
    said = []
    assert running.run_all([first, second], said.append) == ({"first-seed1": reason}, [])
    assert made == [second]
    assert first.failure.read_text() == reason + "\n" and not second.failure.exists()
    assert f"first-seed1: failed: {reason}" in said
