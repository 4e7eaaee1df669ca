"""Files are written whole or not at all, and read with one sentence for what is wrong."""

import bz2
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from user_dir import files
from user_dir.errors import UserError, first_few
from user_dir.files import (
    check_output,
    copy_file,
    locked,
    mean_and_deviation,
    plus_minus,
    read_json,
    read_text,
    read_yaml,
    significance,
    write_json,
    write_text,
)


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "new" / "file.json"
    write_json(path, {"α": [1, 2.5, None]})
    assert read_json(path) == {"α": [1, 2.5, None]}
    assert "α" in path.read_text(encoding="utf-8")
    write_text(path, "naïve\udcff\n")  # a surrogate of a file name is escaped
    assert read_text(path) == "naïve\\udcff\n"
    copy_file(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("ending", (".gz", ".bz2"))
def test_compressed_files_are_read_by_their_name(tmp_path, ending):
    path = tmp_path / f"a.json{ending}"
    packed = {".gz": gzip.compress, ".bz2": bz2.compress}[ending](json.dumps([1]).encode())
    path.write_bytes(packed)
    assert read_json(path) == [1]
    path.write_bytes(packed[:-4])
    with pytest.raises(UserError, match=rf"a\.json\{ending}"):
        read_text(path)


@pytest.mark.parametrize("kind", ("file", "json", "yaml"))
def test_what_cannot_be_read_is_named(tmp_path, kind):
    read = {"file": read_text, "json": read_json, "yaml": read_yaml}[kind]
    with pytest.raises(UserError, match="absent"):
        read(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="binary"):
        read(tmp_path / "binary")
    if kind != "file":
        (tmp_path / "wrong").write_text("a: [1,")
        with pytest.raises(UserError, match="wrong"):
            read(tmp_path / "wrong")


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match=r"cannot write .*file: No space left"):
        write_text(tmp_path / "file", "text")
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_checked_before_the_work(tmp_path):
    check_output(tmp_path / "new" / "file")
    source = tmp_path / "source"
    source.write_text("")
    with pytest.raises(UserError, match="also an input"):
        check_output(tmp_path / "." / "source", [source])
    (tmp_path / "other").hardlink_to(source)
    with pytest.raises(UserError, match="also an input"):
        check_output(tmp_path / "other", [tmp_path / "missing", source])
    with pytest.raises(UserError, match="names a folder"):
        check_output(tmp_path)
    with pytest.raises(UserError, match="no folder to write in"):
        check_output(source / "file")


def test_a_lock_is_held_until_its_process_ends(tmp_path):
    program = f"""
import sys
from pathlib import Path
from user_dir.files import locked
with locked(Path({str(tmp_path)!r}), "writing"):
    print("locked", flush=True)
    sys.stdin.read()
"""
    root = Path(__file__).resolve().parents[1]
    held = subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert held.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match="another run is reading"), locked(tmp_path, "reading"):
        pass
    held.kill()
    held.wait()
    with locked(tmp_path, "reading"):
        pass
    assert os.listdir(tmp_path) == []


def test_figures_as_text():
    assert plus_minus(1.25, 0.5, "+.2f") == "+1.25 ± 0.50"
    assert mean_and_deviation([1.0, 3.0], ".1f") == "2.0 ± 1.4"
    assert mean_and_deviation([2.0, 2.0], ".1f") == "2.0"
    assert mean_and_deviation([2.0, None], ".1f") == ""
    assert (significance(0.0004), significance(0.0312)) == ("< 0.001", "0.031")
    assert first_few([7]) == "line 8" and first_few([1, 0, 8]) == "lines 1, 2 and 9"
