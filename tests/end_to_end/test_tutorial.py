"""docs/tutorial.ipynb runs, and the outputs that it shows are those that running gives."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from commands import train_with
from forks import ROOT
from notebooks import execute

pytestmark = pytest.mark.slow

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
WORK = 'ROOT / "checkpoints" / "tutorial"'
UPDATES = "max_update=200"


def texts(outputs: list[dict]) -> str:
    return "".join("".join(each.get("text") or each["data"]["text/plain"]) for each in outputs)


def without_what_training_decides(text: str) -> str:
    """Another processor may round otherwise, and train another model: only its numbers and words differ."""
    return re.sub(r"-?\d+(\.\d+)?", "#", re.sub(r"→ .*", "→ …", text))


@pytest.mark.parametrize("updates", ["max_update=10", pytest.param(UPDATES, marks=pytest.mark.nightly)])
def test_the_tutorial_gives_the_outputs_that_it_shows(corpus, tmp_path, monkeypatch, updates):
    monkeypatch.chdir(NOTEBOOK.parent)
    # of scripts/train.py; that it ends in a checkpoint is seen by the next cells
    monkeypatch.setattr(subprocess, "run", lambda command, **_: train_with(*command[2:]))
    shutil.copytree(corpus, tmp_path / "data" / "toy")  # which then need not be prepared again
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found = execute(notebook, {WORK: f"Path({str(tmp_path)!r})", UPDATES: updates})
    for cell, outputs in zip(cells, found):
        stored, now = texts(cell["outputs"]), texts(outputs)
        if "trained" in cell["metadata"].get("tags", []):
            stored, now = without_what_training_decides(stored), without_what_training_decides(now)
        assert now == stored, "".join(cell["source"])
        kinds = [sorted(output.get("data", [])) for output in outputs]
        assert kinds == [sorted(output.get("data", [])) for output in cell["outputs"]]
    assert sum(bool(cell["outputs"]) for cell in cells) > 8
    assert (tmp_path / "heads.html").is_file()
