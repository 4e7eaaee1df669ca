"""COMET by the command comet-score: a stand-in for it shows what it is given, and how it may fail."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from user_dir.errors import UserError
from user_dir.translation.comet import Comet

# A sentence scores 1 if its translation is the reference, else a tenth of the source's words; as of
# unbabel-comet 2.2.7, which prints more and writes this JSON.
STAND_IN = """#!{python}
import json, os, sys
given = dict(zip(sys.argv[1:-1], sys.argv[2:]))
assert os.environ["HF_HUB_OFFLINE"] == "1" and given["--gpus"] == "0"
if open(given["--model"]).read() == "broken":
    sys.exit("OSError: cannot find the encoder")
src, mt, ref = ([line.strip() for line in open(given[flag], encoding="utf-8")] for flag in ("-s", "-t", "-r"))
scores = [1 if m == r else len(s.split()) / 10 for s, m, r in zip(src, mt, ref)]
rows = [{{"src": s, "COMET": score}} for s, score in zip(src, scores)]
json.dump({{given["-t"]: rows}}, open(given["--to_json"], "w"))
"""


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    program = tmp_path / "bin" / "comet-score"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    folder = tmp_path / "wmt22"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "hparams.yaml").touch()
    (folder / "checkpoints" / "model.ckpt").write_text("whole")
    return folder


def test_the_score_is_the_mean_over_sentences(model):
    comet = Comet(model, cpu=True)
    found = comet.score(["ä b c", "d", ""], ["X", "Y\u2028y", ""], ["x", "Y y", ""])
    assert found == pytest.approx((0.3 + 1 + 1) / 3)
    assert comet.signature.startswith("wmt22|sha256:")


def test_without_the_command_it_says_how_to_install_it(model, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="pipx install"):
        Comet(model)


def test_a_folder_that_is_no_model_is_refused(model):
    (model / "hparams.yaml").unlink()
    for folder in (model, model / "none"):
        with pytest.raises(UserError, match=f"--comet {folder}"):
            Comet(folder)


def test_a_failure_is_told(model):
    (model / "checkpoints" / "model.ckpt").write_text("broken")
    with pytest.raises(UserError, match="cannot find the encoder"):
        Comet(model, cpu=True).score(["a"], ["b"], ["c"])
