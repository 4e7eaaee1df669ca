"""docs/tutorial.ipynb runs in Jupyter, and the outputs that it shows are those that running gives.

``jupyter execute --inplace docs/tutorial.ipynb`` writes them.
"""

from __future__ import annotations

import re
import shutil
from base64 import b64decode

import nbformat
import pytest
from forks import ROOT
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
WORK = 'ROOT / "checkpoints" / "tutorial"'
UPDATES = "max_update=200"


def texts(outputs: list[dict]) -> str:
    return "".join(output.get("text") or output["data"]["text/plain"] for output in outputs)


def shown(cell: dict) -> list[dict]:
    """The outputs of a cell without what libraries log on standard error."""
    return [output for output in cell.outputs if output.get("name") != "stderr"]


def without_what_training_decides(text: str) -> str:
    """Another processor may round otherwise, and train another model: only its numbers and words differ."""
    return re.sub(r"-?\d+(\.\d+)?", "#", re.sub(r"→ .*", "→ …", text))


def changed(notebook: dict, changes: dict[str, str]) -> dict:
    """The notebook with other text in the place of some of its code."""
    for old, new in changes.items():
        cells = [cell for cell in notebook.cells if old in cell.source and cell.cell_type == "code"]
        assert len(cells) == 1, old
        cells[0].source = cells[0].source.replace(old, new)
    return notebook


@pytest.mark.nightly  # Jupyter runs all that other tests run step by step
@pytest.mark.parametrize("updates", ["max_update=10", UPDATES])
def test_the_tutorial_gives_the_outputs_that_it_shows(corpus, tmp_path, updates):
    shutil.copytree(corpus, tmp_path / "data" / "toy")  # which then need not be prepared again
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    run = changed(nbformat.read(NOTEBOOK, as_version=4), {WORK: f"Path({str(tmp_path)!r})", UPDATES: updates})
    NotebookClient(run, resources={"metadata": {"path": NOTEBOOK.parent}}).execute()
    pictures = []
    for cell, rerun in zip(notebook.cells, run.cells):
        if cell.cell_type != "code":
            continue
        stored, now = texts(shown(cell)), texts(shown(rerun))
        if "trained" in cell.metadata.get("tags", []):
            stored, now = without_what_training_decides(stored), without_what_training_decides(now)
        assert now == stored, cell.source
        kinds = [sorted(output.get("data", [])) for output in shown(rerun)]
        assert kinds == [sorted(output.get("data", [])) for output in shown(cell)]
        data = [output.get("data", {}) for output in rerun.outputs]
        pictures += [b64decode(bundle["image/png"]) for bundle in data if "image/png" in bundle]
    assert [picture[:4] for picture in pictures] == [b"\x89PNG"] * 2
    assert (tmp_path / "heads.html").is_file()
