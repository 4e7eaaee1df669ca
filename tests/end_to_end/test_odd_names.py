"""Folders with odd names, from raw files to BLEU: prepared, trained with and evaluated as they are."""

from __future__ import annotations

import pytest
from commands import ROOT, lines, of, prepared, script, train_with

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

ALL = "a b,c=#%{$'\"ä"
ODD = list(" ,=#%{}$'\"ä([&;~*@\\")
NAMES = [f"a{character}b" for character in ODD]


@pytest.mark.parametrize("name", [pytest.param(ALL, id="all at once"), *NAMES])
def test_from_raw_files_to_bleu(corpus, tmp_path, name):
    files = {}
    for language in ("de", "en"):
        text = lines(corpus / "text" / f"train.{language}")
        files |= {f"train.{language}": text[:200], f"valid.{language}": text[200:205]}
        files[f"exam.{language}"] = text[205:210]
    mine, run = prepared(tmp_path / name, files, vocabulary_size=150), tmp_path / name / "run"
    changes = [f"task.data={mine / 'bin'}", f"checkpoint.save_dir={run}", "optimization.max_update=2"]
    changes += ["dataset.num_workers=0", "task.eval_bleu=false", "checkpoint.best_checkpoint_metric=loss"]
    changes += ["checkpoint.maximize_best_checkpoint_metric=false", "model.encoder_layers=1"]
    train_with(ROOT / "configs" / "toy" / "alpha_entmax.yaml", *changes)
    assert {"checkpoint_last.pt", "alpha.jsonl", "hydra_train.log"} <= {path.name for path in run.iterdir()}
    flags = [*of(run / "checkpoint_last.pt", mine), "--beam", "1"]
    done = script("evaluate", *flags, "--output", run / "scores")
    assert "BLEU" in done.stdout
