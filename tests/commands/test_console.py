"""``adaptively-sparse``: its subcommands are the modules of ``user_dir/commands``, and the scripts."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from user_dir import __version__
from user_dir.commands import COMMANDS, console
from user_dir.files import ROOT, command_words

FOLDER = ROOT / "user_dir" / "commands"


def run(monkeypatch, capsys, *words) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["adaptively-sparse", *words])
    with pytest.raises(SystemExit) as end:
        console()
    shown = capsys.readouterr()
    said = shown.err + (end.value.code if isinstance(end.value.code, str) else "")
    return (1 if isinstance(end.value.code, str) else end.value.code or 0), shown.out, said


def test_every_command_is_a_module_and_a_script():
    modules = {path.stem for path in FOLDER.glob("*.py") if "\ndef main(" in path.read_text(encoding="utf-8")}
    assert set(COMMANDS) == modules
    for name in COMMANDS:
        assert f'run("{name}")' in (ROOT / "scripts" / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_help_lists_all(monkeypatch, capsys, words):
    status, shown, _ = run(monkeypatch, capsys, *words)
    assert status == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in shown] == []


def test_a_subcommand_reads_its_own_words(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version")[:2] == (0, f"{__version__}\n")
    status, shown, _ = run(monkeypatch, capsys, "average", "--help")
    assert status == 0
    assert shown.startswith("usage: adaptively-sparse average ")
    status, _, said = run(monkeypatch, capsys, "average", "--path")
    assert status == 2
    assert "adaptively-sparse average: error: " in said
    status, _, said = run(monkeypatch, capsys, "evalute")
    assert status == 2
    assert "error: " in said.strip().split("\n")[-1]


@pytest.mark.parametrize("pairs", (("a.tmx", "b.tmx"), ("a.tsv", "b.tsv"), ("a.de", "a.en", "a.fr")))
def test_pairs_are_one_table_or_two_files(monkeypatch, capsys, pairs):
    words = ("prepare", "--source", "de", "--target", "en", "--pairs", *pairs)
    assert run(monkeypatch, capsys, *words)[0] == 2


def test_a_missing_requirement_is_named(monkeypatch, capsys):
    def main():
        raise ModuleNotFoundError("No module named 'fairseq.tasks'", name="fairseq.tasks")

    monkeypatch.setattr(importlib.import_module("user_dir.commands.evaluate"), "main", main)
    status, _, said = run(monkeypatch, capsys, "evaluate")
    assert status == 1
    assert "needs fairseq.tasks" in said and "pip install 'adaptively-sparse[fairseq]'" in said


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_streams_are_closed_opens_no_file_in_their_place(closed, tmp_path):
    """Else what is meant for stderr would go into a file, and a file that is read end at once."""
    out = tmp_path / "out"
    program = f"""
import sys
from user_dir.commands.options import run_command
def main():
    print("shown"), print("shown", file=sys.stderr)
    with open({str(out)!r}, "w") as file:
        file.write(f"{{file.fileno() > 2}} {{sys.stdin.read()!r}}")
run_command(main)
"""
    words = ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, program]
    done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, out.read_text()) == (0, "True ''")
    assert done.stdout == ("" if ">&-" in closed.replace("2>", "") else "shown\n")


def test_what_users_are_told_to_type(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert command_words("average") == ["python", "scripts/average.py"]
    monkeypatch.chdir(tmp_path)
    assert Path(command_words("prepare")[1]) == ROOT / "scripts" / "prepare.py"
