import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from user_dir.errors import UserError
from user_dir.io import Busy, atomic_write, check_output, locked, shown, write_text


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
    with atomic_write(path) as first:
        first.write_text("first")
        with atomic_write(path) as second:
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
    with pytest.raises(KeyError), atomic_write(path) as beside:
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


def test_an_input_is_no_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, folder = tmp_path / "talk.de", tmp_path / "text"
    source.write_text("Guten Morgen.")
    folder.mkdir()
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "hard").hardlink_to(source)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "texts").symlink_to(folder)
    for name in ("talk.de", "text/../talk.de", "link", "hard"):
        with pytest.raises(UserError, match=f"{name} is also an input; choose another --report"):
            check_output(tmp_path.joinpath(name).relative_to(tmp_path), [tmp_path / "b", source], "--report")
    for name in ("text/new", "texts/inner/new"):
        with pytest.raises(
            UserError, match=r"new lies in .*text, which is also an input; .* another --output"
        ):
            check_output(tmp_path / name, [folder])
    with pytest.raises(UserError, match="also an input"):  # that is not there yet
        check_output(tmp_path / "new", [tmp_path / "text" / ".." / "new"])
    for name in ("talk.en", "text.en", "new/talk.de"):
        check_output(tmp_path / name, [source, folder, tmp_path / "missing", tmp_path / "circle"])


AROUND = []
AROUND.append(AROUND)


@pytest.mark.parametrize(
    "value",
    [None, True, 1.5, "it's", "a\n" * 60, b"x", [], (), {}, (1,), [1, "a", {"b": (2, 3)}], {3}]
    + [{"a": [1] * 50}]
    + ["x" * size for size in (77, 78, 79, 80, 81)]
    + [[1] * size for size in (26, 27, 28)],
)
def test_a_value_is_shown_as_its_repr_cut_short(value):
    text = repr(value)
    assert shown(value) == (text if len(text) <= 80 else text[:80] + "…")


def test_a_value_is_shown_without_writing_all_of_it():
    made = ["x"] * 9
    for _ in range(20):
        made = [made] * 9
    tracemalloc.start()
    try:
        for value, beginning in (
            (made, "[" * 21 + "'x', "),
            ({"a": made}, "{'a': [["),
            (AROUND, "[" * 80),
            ("x" * 10_000_000, "'xxx"),
            (16**9000, "0x1000"),
        ):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            text = shown(value)
            assert text.startswith(beginning) and len(text) == 81 and text[-1] == "…"
            assert tracemalloc.get_traced_memory()[1] - before < 100_000
    finally:
        tracemalloc.stop()
