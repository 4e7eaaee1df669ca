import os

import pytest
import torch
from helpers import entmax_oracle, entmax_oracle_gradients

from user_dir.benchmarks.accuracy import accuracy, true_alpha_gradient, true_weights
from user_dir.benchmarks.contenders import PER_HEAD, Contender, contenders
from user_dir.benchmarks.kernels import time_kernels

CPU = torch.device("cpu")


@pytest.mark.parametrize("value", [1.0, 1.001, 1.3, 1.5, 2.0])
def test_true_weights_equal_the_oracle(value):
    scores, grad = 3 * torch.randn(5, 40), torch.randn(5, 40)
    alpha = torch.full((5, 1), value)
    weights = true_weights(scores, alpha)
    expected = entmax_oracle(scores, alpha.double())
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-11)
    _, terms, _ = entmax_oracle_gradients(expected, alpha.double(), grad)
    slope = true_alpha_gradient(weights, alpha, grad)
    torch.testing.assert_close(slope, terms.sum(-1, keepdim=True), rtol=1e-6, atol=1e-8)


def test_accuracy_detects_a_wrong_implementation():
    def off(scores, alpha):
        return true_weights(scores, alpha.detach()).float() + 1e-3 + 0 * alpha

    found, left_out = contenders(CPU)
    assert not [name for name in left_out if name != "ours, native"]  # needs a compiler
    rows = accuracy([*found, Contender("off", PER_HEAD, off)], 1.0, seed=1, device=CPU)
    by_key = {(row["implementation"], row["alpha_given"], row["alpha"]): row for row in rows}
    assert by_key["off", PER_HEAD, 1.5]["weights"] == pytest.approx(1e-3, rel=0.01)
    assert by_key["off", PER_HEAD, 1.5]["alpha_gradient"] == pytest.approx(1.0)
    assert by_key["torch softmax", 1.0, 1.0]["weights"] < 1e-6
    for alpha in (1.0, 1.001, 1.5, 2.0):
        assert by_key["ours, reference", PER_HEAD, alpha]["weights"] < 1e-6
        assert by_key["ours, reference", PER_HEAD, alpha]["alpha_gradient"] < 1e-4
    assert by_key["entmax_bisect, 50 steps", PER_HEAD, 1.0]["weights"] > 0.01
    assert by_key["entmax15", 1.5, 1.5]["alpha_gradient"] is None


def test_rows_of_the_kernel_table(monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", "reference")
    ran = []

    def spy(scores, alpha):
        ran.append(os.environ["ENTMAX_BACKEND"])
        return torch.softmax(scores, -1) + 0 * alpha

    found = [
        Contender("torch softmax", 1.0, lambda scores, alpha: torch.softmax(scores, -1)),
        Contender("spy", PER_HEAD, spy, backend="native"),
        Contender("other", PER_HEAD, spy, "spy"),
    ]
    rows = time_kernels(found, (2, 3, 4, 8), 9.0, 2, seed=1, device=CPU)
    assert set(ran) == {"native", "reference"}
    assert os.environ["ENTMAX_BACKEND"] == "reference", "as it was before"
    measures = [(row["implementation"], row["measure"]) for row in rows]
    both = [(name, m) for name in ("spy", "other") for m in ("forward", "backward", "alpha_backward")]
    assert measures == [("torch softmax", "forward"), ("torch softmax", "backward"), *both]
    for row in rows:
        assert 0 < row["seconds"]["q1"] <= row["seconds"]["median"] <= row["seconds"]["q3"]
        assert row["to_softmax"] > 0
        assert (row["to_peer"] is None) == (row["implementation"] != "other")
    # The weights and the gradient of the scores, 192 floats each.
    assert next(row["peak_bytes"] for row in rows if "peak_bytes" in row) == pytest.approx(1536, abs=200)


def test_a_contender_that_does_not_run_is_omitted(monkeypatch):
    import entmax

    def broken(*args, **kwargs):
        raise RuntimeError("not on this machine")

    monkeypatch.setattr(entmax, "sparsemax", broken)
    found, left_out = contenders(CPU)
    assert "not on this machine" in left_out["sparsemax"]
    assert "sparsemax" not in [contender.name for contender in found]
    assert "entmax15" in [contender.name for contender in found]
