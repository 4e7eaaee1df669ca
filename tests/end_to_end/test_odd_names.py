"""Folders with odd names, from raw files to BLEU: prepared, trained with and evaluated as they are."""

from __future__ import annotations

import json

import pytest
from commands import ROOT, script, train_with

pytestmark = pytest.mark.slow

ALL = "a b,c=#%{$'\"ä"
ODD = [*" ,=#%{}$'\"ä([&;~*@\\", "${x}"]
NIGHTLY = [pytest.param(f"a{each}b", marks=pytest.mark.nightly) for each in ODD]


@pytest.mark.parametrize("name", [pytest.param(ALL, id="all at once"), *NIGHTLY])
def test_from_raw_files_to_bleu(corpus, tmp_path, name):
    raw, mine, run = (tmp_path / name / each for each in ("raw", "data/mine", "run"))
    raw.mkdir(parents=True)
    mine.mkdir(parents=True)
    for language in ("de", "en"):
        lines = (corpus / "text" / f"train.{language}").read_text().split("\n")
        for split, first, last in (("train", 0, 200), ("valid", 200, 205), ("test", 205, 210)):
            (raw / f"{split}.{language}").write_text("\n".join(lines[first:last]) + "\n")
    splits = {split: f"{split}.{{language}}" for split in ("train", "valid", "test")}
    description = {"title": "mine", "languages": ["de", "en"], "splits": splits, "vocabulary_size": 150}
    (mine / "corpus.yaml").write_text(json.dumps(description))  # JSON is YAML
    script("prepare", "mine", "--raw", raw, "--data", mine.parent, "--workers", "1")
    changes = [f"task.data={mine / 'bin'}", f"checkpoint.save_dir={run}", "optimization.max_update=2"]
    changes += ["dataset.num_workers=0", "task.eval_bleu=false", "checkpoint.best_checkpoint_metric=loss"]
    changes += ["checkpoint.maximize_best_checkpoint_metric=false", "model.encoder_layers=1"]
    train_with(ROOT / "configs" / "toy" / "alpha_entmax.yaml", *changes)
    assert {"checkpoint_last.pt", "alpha.jsonl", "hydra_train.log"} <= {path.name for path in run.iterdir()}
    given = ["--path", run / "checkpoint_last.pt", "--corpus", "mine", "--data", mine.parent]
    done = script("evaluate", *given, "--output", run / "scores")
    assert "BLEU" in done.stdout


def test_a_name_of_two_lines_is_refused(tmp_path):
    done = script(
        "train", "configs/toy/alpha_entmax.yaml", f"checkpoint.save_dir={tmp_path}/a\nb", check=False
    )
    assert done.returncode == 1 and "a\\nb" in done.stderr and not any(tmp_path.iterdir())
