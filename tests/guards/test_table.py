"""The table of guards: complete, on its page, and each guard can be left out."""

import logging
import re
from pathlib import Path

import fairseq
import pytest

import user_dir.models  # noqa: F401  installs the guards
from user_dir import guards
from user_dir.commands.guards import main
from user_dir.errors import UserError
from user_dir.experiments.tables_page import updated
from user_dir.guards import GUARDS, Kind, announcing, installing
from user_dir.guards.table import WITHOUT, left_out

ROOT = Path(__file__).resolve().parents[2]


def test_every_guard_is_in_the_table_once():
    folder = ROOT / "user_dir" / "guards"
    text = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    found = {name for name, each in text.items() if re.search(r"^(def install\(|@around\()", each, re.M)}
    others = {"__init__", "announcing", "installing"}
    assert sorted(guard.module for guard in GUARDS) == sorted(found - others)


def test_every_guard_says_what_is_wrong_and_until_when():
    for guard in GUARDS:
        wrong, until = guard.reasons()
        assert wrong.endswith(".") and until.startswith("once "), guard.name


def test_the_page_shows_what_its_command_prints(capsys):
    page = (ROOT / "docs" / "guards.md").read_text(encoding="utf-8")

    def run(command: str) -> str:
        assert command.strip() == "python scripts/guards.py"
        main([])
        return capsys.readouterr().out

    assert updated(page, run) == page and page.count("<!-- output: ") == len(Kind)


def test_left_out_guards_are_not_installed(monkeypatch, caplog):
    installed = []
    monkeypatch.setenv(WITHOUT, "last-batches")
    monkeypatch.delattr(fairseq, "guarded_by")
    monkeypatch.setattr(
        installing, "install", lambda module: installed.append(module.__name__.split(".")[-1])
    )
    guards.install()
    expected = [guard.module for guard in GUARDS if guard.name != "last-batches"]
    assert installed == ["announcing", *expected] and len(expected) == len(GUARDS) - 1
    assert "last-batches" in caplog.text
    guards.install()
    assert len(installed) == len(GUARDS), "once per process"


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
