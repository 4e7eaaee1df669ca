"""A release archive is translated where neither torch nor fairseq, nor what comes with it, is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import checked

from user_dir.checkout import DATA
from user_dir.releases.opened import opened
from user_dir.translation.translator import open_translator

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ["Ein Satz.", "Der Hund schläft unter dem Tisch, weil es regnet."]
BLOCKED = (
    *(
        "bitarray",
        "fairseq",
        "fairseq_cli",
        "hydra",
        "langcodes",
        "lxml",
        "matplotlib",
        "omegaconf",
        "pandas",
    ),
    *("sacrebleu", "sacremoses", "scipy", "sklearn", "tabulate", "tensorboardX", "tokenizers"),
    *("torch", "torchaudio", "tqdm", "triton"),
)
PROGRAM = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
PYTHON = f"""
import user_dir
model = user_dir.load_model("de-en", cpu=True)
print(*model.translate({TEXTS}), sep="\\n")
assert not {{name.partition(".")[0] for name in sys.modules}} & set({BLOCKED})
"""
COMMAND = """
sys.argv = ["translate", "--model", "de-en", "--cpu", {arguments}]
from user_dir.commands import run
run("translate")
"""


@pytest.fixture(scope="module")
def expected() -> list[str]:
    with opened([DATA / "models" / "de-en.tar"]) as (checkpoints, corpus):
        translator = open_translator(checkpoints, corpus, cpu=True, by_fairseq=True)
    return [found[0].text for found in translator(TEXTS)]


def output(program: str, given: str = "") -> str:
    command = [sys.executable, "-c", PROGRAM + program]
    done = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, encoding="utf-8")
    return checked(done, True).stdout


def test_by_python(expected):
    assert output(PYTHON).splitlines() == expected


@pytest.mark.parametrize("piped", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_by_command(expected, piped):
    arguments = "" if piped else ", ".join(map(repr, TEXTS))
    found = output(COMMAND.format(arguments=arguments), "\n".join(TEXTS) if piped else "")
    assert found.splitlines() == expected
