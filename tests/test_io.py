import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from user_dir.errors import UserError
from user_dir.io import Busy, locked, write_text, written_beside


def test_a_locked_folder_is_reported(tmp_path):
    with (
        locked(tmp_path / "new", "preparing"),
        pytest.raises(Busy, match="another run is preparing"),
        locked(tmp_path / "new", "preparing"),
    ):
        pass
    with locked(tmp_path / "new", "preparing"):
        pass


def test_the_lock_lasts_as_long_as_a_child_that_has_it(tmp_path):
    wait = [sys.executable, "-S", "-c", "input()"]
    with locked(tmp_path, "training in") as descriptors:
        child = subprocess.Popen(wait, stdin=subprocess.PIPE, pass_fds=descriptors)
    with pytest.raises(Busy, match="training in"), locked(tmp_path, "training in"):
        pass
    child.communicate(b"\n")
    with locked(tmp_path, "training in"):
        pass


def test_concurrent_writers_each_write_a_complete_file(tmp_path):
    path = tmp_path / "new" / "report.json"
    with written_beside(path) as first:
        first.write_text("first")
        with written_beside(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(tmp_path):
    path, rounds = tmp_path / "report", 100
    texts = {letter: letter * 100_000 for letter in "ab"}
    write_text(path, texts["a"])

    def write(letter):
        for _ in range(rounds):
            write_text(path, texts[letter])

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, letter) for letter in texts]
        seen = []
        while not all(writer.done() for writer in writers):
            seen.append(path.read_text())
        for writer in writers:
            writer.result()
    assert seen and set(seen) <= set(texts.values())
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "report"
    path.write_text("old")
    with pytest.raises(KeyError), written_beside(path) as beside:
        beside.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UserError, match="cannot create the folder"):
        write_text(path / "below a file", "new")


def test_files_left_by_killed_runs_do_no_harm(tmp_path):
    path = tmp_path / "report"
    path.with_name("report.tmp").mkdir()  # the name used by earlier versions
    path.with_name("report.0123456789abcdef.tmp").write_text("half")
    write_text(path, "new")
    assert path.read_text() == "new"


def test_files_have_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "report", "new")
        (tmp_path / "other").write_text("new")
    finally:
        os.umask(before)
    assert (tmp_path / "report").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert (tmp_path / "report").stat().st_mode & 0o777 == 0o640
