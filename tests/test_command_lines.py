"""Every script, and ``python -m``, in adverse situations: an exit status and at most one message.

The scripts are those of the folder, so that a new one is tested as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, forks
from examples import write_alpha_log, write_statistics

SCRIPTS = sorted(path.stem for path in (ROOT / "scripts").glob("[!_]*.py"))
ADVERSE = ROOT / "tests" / "end_to_end" / "adverse.py"


def test_there_are_scripts():
    assert {"compare", "install", "prepare", "train"} < set(SCRIPTS)


def path_of(name: str) -> Path:
    return ROOT / "scripts" / f"{name}.py"


def adverse(situation: str, name: str, *words, **options) -> subprocess.CompletedProcess:
    return forks().run(ADVERSE, situation, path_of(name), *words, **options)


def message(done: subprocess.CompletedProcess) -> str:
    """The one line that was said."""
    (line,) = done.stderr.splitlines()
    return line


SITUATIONS = ("", "ascii", "latin1", "closed", "full", "interrupted")


@pytest.fixture(scope="module")
def helps() -> dict:
    """What ``--help`` of each script gives in each situation: status, stdout, stderr."""
    asked = [(situation, str(path_of(name)), "--help") for situation in SITUATIONS for name in SCRIPTS]
    done = subprocess.run(
        [sys.executable, ADVERSE, "all"], input=json.dumps(asked), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {(each[0], Path(each[1]).stem): result for each, result in zip(asked, json.loads(done.stdout))}


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name, helps):
    for situation in ("", "ascii", "latin1"):
        status, shown, said = helps[situation, name]
        assert status == 0 and not said and shown.startswith("usage: ")
    original, ascii = helps["", name][1], helps["ascii", name][1]
    assert ascii.isascii() and "\\u" not in ascii
    assert original.count("α") <= ascii.count("alpha")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_failing_stdout(name, helps):
    assert helps["closed", name] == [141, "", ""]
    status, _, said = helps["full", name]
    assert status == 1 and said == "error: cannot write stdout: No space left on device\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_interrupt(name, helps):
    status, shown, said = helps["interrupted", name]
    assert status == 130 and not shown and said.startswith("interrupted") and said.count("\n") == 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_bad_values(name, tmp_path):
    """Of each option in turn: names that are none, too long, not text, without permission; odd numbers."""
    before = contents(ROOT / "scripts") | contents(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    done = adverse("every-option", name, work, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found or name in ("clean", "install")
    for each in found:
        check(each)
    assert contents(ROOT / "scripts") | contents(tmp_path) - contents(work) - {work} == before


def contents(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def check(each: dict) -> None:
    """It was refused with a message; or else it need not be, and nothing was said."""
    assert "Traceback" not in each["said"], each["words"]
    assert each["status"] in (0, 1, 2), each
    if each["status"]:
        assert "error: " in each["said"].strip().split("\n")[-1], each
        assert "\x1b" not in each["said"].split("error: ")[-1], each
    else:
        assert not each["refuse"], each


@pytest.mark.parametrize("encoding", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_the_environment_sets_the_encoding(encoding):
    encoding |= {"PYTHONCOERCECLOCALE": "0", "PYTHONUNBUFFERED": ""}
    command = [sys.executable, path_of("compare")]
    done = subprocess.run([*command, "--help"], env={**os.environ, **encoding}, capture_output=True)
    assert done.returncode == 0 and not done.stderr and b"--system alpha-entmax" in done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_fails_without_a_buffer(unbuffered):
    command = [sys.executable, path_of("compare"), "--help"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and message(done).startswith("error: cannot write stdout")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


REPORTS = {
    "compare": "--system a a.en --system b b.en --ref ref.en --samples 5 --output tables.md",
    "compare_heads": "--system a model.heads.json --output tables.md",
    "dump_alphas": "--path alpha.jsonl",
    "plot_heads": "model.heads.json --alpha-log alpha.jsonl --format png",
    "report": "--statistics model.heads.json",
}


@pytest.mark.parametrize("name", REPORTS)
def test_results_are_in_their_files_whatever_becomes_of_stdout(name, tmp_path):
    written = {}
    for situation in ("ascii", "full", "closed"):
        folder = tmp_path / situation
        folder.mkdir()
        write_statistics(folder / "model.heads.json")
        write_alpha_log(folder / "alpha.jsonl")
        for text in ("a.en", "b.en", "ref.en"):
            (folder / text).write_text("a man sees a car .\ntwo girls paint a wall .\n")
        given = contents(folder)
        done = adverse(situation, name, *REPORTS[name].split(), cwd=folder)
        assert done.returncode == {"ascii": 0, "full": 1, "closed": 141}[situation], done.stderr
        assert "Traceback" not in done.stderr
        if situation == "full":
            assert message(done).startswith("error: cannot write stdout")
        written[situation] = {file.relative_to(folder) for file in contents(folder) - given if file.is_file()}
    assert written["ascii"] and written["ascii"] == written["full"] == written["closed"]


def test_install_needs_the_standard_library_alone():
    command = [sys.executable, "-S", path_of("install"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: install.py"), done.stderr


def test_the_packages_own_command(tmp_path):
    """It prints its folder byte for byte, as the shell hands it on."""
    folder = tmp_path / "\udcff"
    folder.mkdir()
    (folder / "adaptively_sparse").symlink_to(ROOT / "user_dir")
    command = [sys.executable, "-m", "adaptively_sparse"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{(ROOT / 'user_dir').resolve()}\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and message(done).startswith("error: cannot write stdout")
