"""The figures of a run."""

import json
from types import SimpleNamespace

from user_dir.experiments import evaluating


def test_a_criterion_without_a_perplexity(monkeypatch):
    monkeypatch.setattr(evaluating, "_losses", lambda job: [{"valid_loss": "2.5", "valid_support": "3.1"}])
    found = {"loss": 2.5, "nll_loss": None, "ppl": None, "support": 3.1}
    assert evaluating.validation_figures(None) == found
    whole = {"valid_loss": "2.5", "valid_nll_loss": "2", "valid_ppl": "4"}
    monkeypatch.setattr(evaluating, "_losses", lambda job: [whole])
    found = {"loss": 2.5, "nll_loss": 2.0, "ppl": 4.0, "support": None}
    assert evaluating.validation_figures(None) == found


def test_training_figures_have_the_last_epoch_of_a_latent_alignment(tmp_path):
    epoch = {"train_wpb": "100", "train_num_updates": "10", "train_wps": "50"}
    lines = [{"epoch": 1, **epoch, "train_alignment_positions": "3.5"}]
    lines += [{"epoch": 2, **epoch, "train_num_updates": "20", "train_alignment_positions": "2.5"}]
    (tmp_path / "training.log").write_text("".join(f"[train] {json.dumps(line)}\n" for line in lines))
    sessions = [{"seconds": 2.0, "processor_seconds": 3.5, "workers": 2}, {"seconds": 4.0}]  # one was killed
    (tmp_path / "training.json").write_text(json.dumps({"sessions": sessions}))
    found = evaluating.training_figures(SimpleNamespace(folder=tmp_path))
    assert found["alignment"] == {"positions": 2.5} and found["updates"] == 20
    assert found["workers"] == [1, 2] and found["sessions"] == 2
    assert found["seconds"] == 6 and found["processor_seconds"] is None

    (tmp_path / "training.log").write_text(f"[train] {json.dumps({'epoch': 1, **epoch})}\n")
    assert "alignment" not in evaluating.training_figures(SimpleNamespace(folder=tmp_path))
