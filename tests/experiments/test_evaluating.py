"""The figures of a run."""

from user_dir.experiments import evaluating


def test_a_criterion_without_a_perplexity(monkeypatch):
    monkeypatch.setattr(evaluating, "_losses", lambda job: [{"valid_loss": "2.5", "valid_support": "3.1"}])
    assert evaluating.validation_figures(None) == {"loss": 2.5, "nll_loss": None, "ppl": None}
    whole = {"valid_loss": "2.5", "valid_nll_loss": "2", "valid_ppl": "4"}
    monkeypatch.setattr(evaluating, "_losses", lambda job: [whole])
    assert evaluating.validation_figures(None) == {"loss": 2.5, "nll_loss": 2.0, "ppl": 4.0}
