"""The table of guards: complete, on its page, and each guard can be left out."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from user_dir.errors import UserError
from user_dir.guards import GUARDS, Kind, announcing
from user_dir.guards.table import WITHOUT, left_out

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = """
import inspect, user_dir.models
from fairseq import checkpoint_utils
from fairseq.data import data_utils
print("last-batches", hasattr(data_utils.batch_by_size, "__wrapped__"))
print("torn-checkpoints", hasattr(checkpoint_utils.torch_persistent_save, "__wrapped__"))
"""


def test_every_guard_is_in_the_table_once():
    folder = ROOT / "user_dir" / "guards"
    text = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    found = {name for name, each in text.items() if re.search(r"^(def install\(|@around\()", each, re.M)}
    others = {"__init__", "announcing", "installing"}
    assert sorted(guard.module for guard in GUARDS) == sorted(found - others)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_every_guard_is_on_the_page_with_its_reasons(guard):
    wrong, until = guard.reasons()
    assert wrong.endswith(".")
    assert until.startswith("once ")
    page = (ROOT / "docs" / "guards.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {guard.name} |"))
    for text in (wrong, until):
        assert text.replace("``", "`") in row
    assert page.rindex("## ", 0, page.index(row)) == page.index(
        {Kind.EXPLAINS: "## Those that refuse", Kind.REPAIRS: "## Those that repair"}.get(
            guard.kind, "## Those that change"
        )
    )


def test_left_out_guards_are_not_installed():
    environment = {**os.environ, WITHOUT: "last-batches"}
    done = subprocess.run(
        [sys.executable, "-c", INSTALLED], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["last-batches", "False", "torn-checkpoints", "True"], done.stderr
    assert "last-batches" in done.stderr


def test_an_unknown_name_is_an_error(monkeypatch):
    monkeypatch.setenv(WITHOUT, "last-batches,moving-averages")
    with pytest.raises(UserError, match=r"moving-averages.*choose from .*moving-average"):
        left_out()


def test_a_change_is_announced_once_and_only_for_fairseqs_architectures(monkeypatch, caplog):
    monkeypatch.setattr(announcing, "_stock", "")
    announcing.acted("last-batches", "does this")
    assert not caplog.records
    monkeypatch.setattr(announcing, "_stock", "transformer_of_this_test")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            announcing.acted("last-batches", "does this")
    (line,) = caplog.messages
    assert "transformer_of_this_test" in line and "last-batches" in line and WITHOUT in line
