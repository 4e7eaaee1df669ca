"""Folders shared by the workers of a run."""

from __future__ import annotations

import multiprocessing

import pytest
from once import Once


def test_a_folder_is_filled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    calls = []
    for worker in ("gw0", "gw1"):
        once = Once(tmp_path / worker)
        folder = once("data", lambda folder: (folder / "file").write_text("whole") and calls.append(folder))
        assert (folder / "file").read_text() == "whole"
    assert len(calls) == 1
    assert folder.parent == tmp_path / "once"


def test_without_workers_nothing_is_shared_with_other_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    for run in ("run-0", "run-1"):
        (tmp_path / run).mkdir()
        assert Once(tmp_path / run)("data", lambda folder: None).is_relative_to(tmp_path / run)


def test_a_failed_folder_is_filled_again(tmp_path):
    def half(folder):
        (folder / "half").touch()
        raise ZeroDivisionError

    once = Once(tmp_path)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            once("data", half)
    folder = once("data", lambda folder: (folder / "file").touch())
    assert [path.name for path in folder.iterdir()] == ["file"]


def fill(folder):
    with (folder.parent / "calls").open("a") as file:
        file.write("x")


def test_concurrent_workers_wait_for_each_other(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=Once(tmp_path), args=("data", fill)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert (tmp_path / "once" / "calls").read_text() == "x"
