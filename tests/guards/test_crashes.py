"""Errors of fairseq's commands: one line, and the traceback where the line says."""

import logging
import re
import subprocess
import sys

import pytest

from user_dir.guards import crashes

OF_A_WORKER = 'RuntimeError("""In process 0:\\nTraceback (most recent call last):\\n  File\\nKeyError: 5""")'


def ended(capsys, statement: str, file: str = "/lib/fairseq_cli/generate.py") -> tuple[str, list]:
    """What is printed when ``statement`` ends a function of a file, and what was left to Python."""
    left: list = []
    source = f"def build_criterion(size=0):\n    {statement}\ndef main():\n    build_criterion()\nmain()\n"
    try:
        exec(compile(source, file, "exec"), {})
    except BaseException as error:
        crashes.report(lambda *args: left.append(args), error)
    return capsys.readouterr().err, left


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("{}['adamm']", r"build criterion: KeyError: 'adamm'"),
        ("raise ValueError('two\\nlines')", r"build criterion: ValueError: two lines"),
        (f"raise {OF_A_WORKER}", r"build criterion: RuntimeError: KeyError: 5"),
        ("raise OSError(28, 'No space left on device', 'f')", r"OSError: \[Errno 28\] No space left.*'f'"),
        ("raise KeyboardInterrupt", r"KeyboardInterrupt: "),
    ],
)
def test_one_line_on_the_terminal_and_all_in_the_log(tmp_path, capsys, statement, words):
    handler = logging.FileHandler(tmp_path / "train.log")
    logging.getLogger("fairseq_cli.of_a_test").addHandler(handler)  # as by --log-file
    try:
        shown, left = ended(capsys, statement)
    finally:
        logging.getLogger("fairseq_cli.of_a_test").removeHandler(handler)
        handler.close()
    assert re.fullmatch(f"error: .*{words} \\(traceback in {tmp_path}/train.log\\)\n", shown) and not left
    assert "Traceback (most recent call last)" in (tmp_path / "train.log").read_text()


def test_without_a_log_the_traceback_has_a_file_of_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(crashes.tempfile, "tempdir", str(tmp_path))
    shown, _ = ended(capsys, "{}['adamm']")
    assert shown.count("\n") == 1 and str(tmp_path) in shown
    (log,) = tmp_path.iterdir()
    assert "in build_criterion" in log.read_text()
    monkeypatch.setattr(crashes.tempfile, "tempdir", str(tmp_path / "no"))
    assert "traceback could not be written: No such file" in ended(capsys, "{}['adamm']")[0]


def test_other_programs_keep_their_tracebacks(capsys):
    shown, left = ended(capsys, "{}['adamm']", file="/home/me/experiment.py")
    assert not shown and left[0][0] is KeyError


@pytest.mark.slow
def test_commands_of_fairseq_end_so(tmp_path):
    """From nothing but the plugin's folder, whose task, criterion and size fairseq then knows."""
    words = "data --user-dir user_dir --arch adaptively_sparse_transformer_tiny --optimizer adam"
    words += " --task translation_with_bpe_dropout --criterion entmax_loss"
    command = [sys.executable, "-c", "from fairseq_cli.train import cli_main; cli_main()", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, env={"TMPDIR": str(tmp_path), "PATH": ""})
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert re.search(r"^error: .*AssertionError: .*--max-tokens.*\(traceback in .*\)$", done.stderr, re.M)
