"""Every script, and ``python -m``, in adverse situations: an exit status and at most one message.

The scripts are those of the folder, so that a new one is tested as well.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import ROOT, forks
from examples import importance, write_alpha_log, write_statistics
from tiny import DESCRIPTION

from user_dir import corpora
from user_dir.command_line import length_penalty
from user_dir.errors import UserError

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
def test_help_and_its_ends(name, helps):
    """On any terminal; with a full disk, a closed pipe or Ctrl-C, there is a status and one message."""
    for situation in ("", "ascii", "latin1"):
        status, shown, said = helps[situation, name]
        assert status == 0 and not said and shown.startswith("usage: ")
    original, ascii = helps["", name][1], helps["ascii", name][1]
    assert ascii.isascii() and "\\u" not in ascii
    assert original.count("α") <= ascii.count("alpha")
    assert helps["closed", name] == [141, "", ""]
    status, _, said = helps["full", name]
    assert status == 1 and said == "error: cannot write stdout: No space left on device\n"
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
    assert found or name in ("clean", "guards", "install")
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


CORPUS = "--corpus tiny --data data"
MODELS = "--system a heads/a.heads.json --output"
EVALUATIONS = "--samples 5 --system a a/scores.json --system b b/scores.json --output"
# Each command would write the file that follows it, which it also reads, or which is of the corpus.
ONTO_INPUTS = [
    ("average_checkpoints", "--path 1.pt m.pt --output 1.pt", "1.pt"),
    ("average_checkpoints", "--path average.pt m.pt", "average.pt"),
    ("average_checkpoints", "--path epochs --last-epochs 2 --output epochs/checkpoint1.pt", "checkpoint1.pt"),
    ("compare", f"{EVALUATIONS} b/scores.md", "b/scores.json"),
    ("compare", f"{EVALUATIONS} ./b/odd_test.en", "b/odd_test.en"),  # its translations
    ("compare", f"{EVALUATIONS} data/tiny/text/test1.en", "data/tiny/text/test1.en"),  # its references
    ("compare", "--system a a.en --system b b.en --ref ref.en --output ref.en", "ref.en"),
    ("compare", f"--min-words 1 --source talk.de {EVALUATIONS} talk.de", "talk.de"),
    ("compare_heads", f"{MODELS} heads/a.heads.md", "heads/a.heads.json"),
    ("compare_heads", f"{MODELS} heads/a.importance.md", "heads/a.importance.json"),
    ("compare_heads", f"{MODELS} heads/alpha.jsonl", "heads/alpha.jsonl"),
    ("align", f"--path m.pt {CORPUS} --output a --gold a/all.pharaoh", "a/all.pharaoh"),
    ("convert_checkpoint", "--path m.pt --output link.pt", "link.pt"),
    ("dump_alphas", "--path heads/log.json --output heads/log.json", "heads/log.json"),
    ("dump_alphas", "--path heads/log.csv --output heads/log.json", "heads/log.csv"),
    ("dump_alphas", "--path heads/log.png --output heads/log.json --format png", "heads/log.png"),
    ("evaluate", f"--path m.pt {CORPUS} --output data/tiny/text", "data/tiny/text"),
    ("evaluate", f"--path m.pt {CORPUS} --output text", "text"),  # a link
    ("evaluate", f"--path m.pt {CORPUS} --output data/tiny/raw", "data/tiny/raw"),
    ("experiment", "plan.yaml --records heads --output heads/new.md", "heads/new.md"),
    ("experiment", "plan.json --output plan.md", "plan.json"),
    ("head_importance", f"--path m.pt {CORPUS} --output heads/a.json --figure m.pt", "m.pt"),
    ("head_stats", f"--path m.csv {CORPUS} --output m.json", "m.csv"),
    ("head_stats", f"--path m.pt {CORPUS} --interrogatives de=w.csv --output w.json", "w.csv"),
    ("plot_attention", "a.svg --head encoder_self:0:0", "a.svg"),
    ("plot_heads", "heads/a.heads.json --alpha-log diversity.png --output . --format png", "diversity.png"),
    ("release", "--path m.tar --output ./data/../m.tar", "m.tar"),
    ("report", "--statistics heads/a.heads.json --alpha-log l.html --output l.html", "l.html"),
    ("report", "--statistics heads/a.heads.json --maps n.html --output link.html", "link.html"),
    ("report", f"--path m.pt --alpha-log m.valid.heads.csv {CORPUS}", "m.valid.heads.csv"),
    ("search", f"--path m.pt {CORPUS} --output m.pt", "m.pt"),
    ("search", f"--path m.pt {CORPUS} --output data/tiny/text/valid.en", "data/tiny/text"),
    ("search", f"--path m.pt {CORPUS} --output data/tiny/spm.model", "data/tiny/spm.model"),
    ("translate", "--path m.pt --output m.pt Hallo", "m.pt"),
    ("translate", "--path 1.pt --path m.pt --output link.pt Hallo", "link.pt"),
    ("translate", "--path de-en.tar --output de-en.tar Hallo", "de-en.tar"),
    ("translate", "--path m.pt --input talk.de --output talk.de", "talk.de"),
    ("translate", "--path m.pt --input x.html --report x.html", "x.html"),
    ("translate", "--path m.pt --output y.html --report y.html Hallo", "y.html"),
]


@pytest.mark.parametrize(("name", "words", "lost"), ONTO_INPUTS)
def test_outputs_onto_inputs_are_refused(name, words, lost, tmp_path):
    """Before any work: no checkpoint here is one."""
    tiny, heads, epochs = tmp_path / "data" / "tiny", tmp_path / "heads", tmp_path / "epochs"
    for folder in (tiny / "text", tiny / "raw", tiny / "bin", heads, epochs, tmp_path / "a", tmp_path / "b"):
        folder.mkdir(parents=True)
    (tiny / "corpus.yaml").write_text(DESCRIPTION)
    files = ["1.pt", "m.pt", "average.pt", "epochs/checkpoint1.pt", "epochs/checkpoint2.pt", "de-en.tar"]
    files += ["a.en", "b.en", "ref.en", "talk.de", "x.html", "a/odd_test.en", "b/odd_test.en"]
    files += ["m.csv", "w.csv", "m.tar", "a.svg", "a/all.pharaoh"]
    files += ["plan.yaml", "plan.json", "n.html", "m.valid.heads.csv"]
    files += [
        f"data/tiny/{each}" for each in ("bin/stamp.json", "spm.model", "text/test1.en", "text/valid.en")
    ]
    for file in files:
        (tmp_path / file).write_text("a man sees a car .\ntwo girls paint a wall .\n")
    (tmp_path / "link.pt").symlink_to("m.pt")
    (tmp_path / "link.html").symlink_to("n.html")
    (tmp_path / "text").symlink_to(tiny / "text")
    evaluation = {"test_set": "odd_test", "direction": "de-en", "bleu_signature": "case:mixed|tok:13a"}
    evaluation["references"] = str(tiny / "text" / "test1.en")
    for system in ("a", "b"):
        for file in ("odd_test.json", "scores.json"):
            (tmp_path / system / file).write_text(json.dumps(evaluation))
    write_statistics(heads / "a.heads.json")
    (heads / "a.importance.json").write_text(json.dumps(importance()))
    for log in ("alpha.jsonl", "log.json", "log.csv", "log.png", "../diversity.png", "../l.html"):
        write_alpha_log(heads / log)
    before = {path: path.read_bytes() for path in contents(tmp_path) if path.is_file()}
    done = forks().run(path_of(name), *words.split(), cwd=tmp_path)
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and said.startswith("error: ") and lost in said, done.stderr
    assert re.search("also an input; choose another --|is both --output and --report|written twice", said)
    assert {path: path.read_bytes() for path in contents(tmp_path) if path.is_file()} == before


def test_an_output_onto_stdin_is_refused(tmp_path):
    (tmp_path / "talk.de").write_text("Guten Morgen.\n")
    words = ["--path", "m.pt", "--output", "talk.de"]
    done = forks().run(path_of("translate"), *words, cwd=tmp_path, stdin=tmp_path / "talk.de")
    assert done.returncode == 1 and "talk.de is also an input" in done.stderr, done.stderr


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


@pytest.mark.parametrize("name", ["evaluate", "search", "translate"])
def test_a_length_penalty_is_a_finite_number(name):
    assert [length_penalty(text) for text in ("0.6", "-1", "1e1")] == [0.6, -1.0, 10.0]
    for value in ("nan", "inf", "-inf", "1e400", "11", "x", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number from -10 to 10"):
            length_penalty(value)
    done = forks().run(path_of(name), "--lenpen=nan")
    assert done.returncode == 2 and "argument --lenpen: 'nan' is not a number" in done.stderr


def test_a_benchmark_needs_a_test_set(monkeypatch, tmp_path):
    workshops = importlib.import_module("user_dir.benchmarks.model_sections").workshops
    own = SimpleNamespace(name="own", folder=tmp_path, test_sets={})
    own.require_prepared = lambda: own
    monkeypatch.setattr(corpora, "load_corpus", lambda *_: own)
    given = SimpleNamespace(corpus="own", data=None, precision=None, size=None, path=None, quick=True)
    with pytest.raises(UserError, match=r"corpus\.yaml lists no test set.*choose another --corpus"):
        next(workshops(given, SimpleNamespace(type="cpu"), {}))


def test_training_without_a_config_says_what_one_is():
    done = forks().run(path_of("train"), "--verbose")
    assert done.returncode == 2
    assert "CONFIG" in done.stderr and "key=value" not in message_of_usage(done)
    assert (ROOT / re.search(r"configs/\S+\.yaml", done.stderr)[0]).is_file()


def message_of_usage(done: subprocess.CompletedProcess) -> str:
    """The last line, after the usage."""
    return done.stderr.splitlines()[-1]
