"""Calibration of probabilities that are written down, and of a model's."""

import pytest
import torch
from helpers import batch, build, dictionary

from user_dir.translation.calibration import Calibration, calibration


def test_the_error_is_the_mean_distance_of_accuracy_and_confidence():
    found = Calibration(bins=10)
    p = torch.tensor([[0.95, 0.05], [0.92, 0.08], [0.45, 0.55], [0.41, 0.59], [1.0, 0.0]])
    found.add(p[:3], torch.tensor([0, 1, 1]))
    found.add(p[3:], torch.tensor([0, 0]))
    # bins: 0.9 to 1 with (0.95 + 0.92 + 1)/3 and 2/3 correct; 0.5 to 0.6 with (0.55 + 0.59)/2 and 1/2 correct
    expected = (abs(2 - 2.87) + abs(1 - 1.14)) / 5
    assert found.error == pytest.approx(expected, abs=1e-6)
    facts = found.facts
    assert facts["tokens"] == 5 and facts["accuracy"] == pytest.approx(3 / 5)
    assert [each["tokens"] for each in facts["bins"]] == [2, 3]
    assert facts["bins"][0]["confidence"] == pytest.approx(0.57)


def test_a_calibrated_model_has_hardly_any_error():
    p = torch.softmax(3 * torch.randn(20000, 5), -1)
    found = Calibration()
    found.add(p, torch.multinomial(p, 1).squeeze(1))
    assert found.error < 0.02
    wrong = Calibration()
    wrong.add(torch.softmax(3 * p.log(), -1), torch.multinomial(p, 1).squeeze(1))
    assert wrong.error > 0.1


def test_padding_is_not_counted():
    model, given = build("--output-alpha 1.5").eval(), batch()
    target = given.pop("target")
    found = calibration(model, [{"net_input": given, "target": target}], dictionary().pad())
    assert found.facts["tokens"] == 14
    p = model.get_normalized_probs(model(**given), log_probs=False)
    correct = (p.argmax(-1) == target)[target != dictionary().pad()]
    assert found.facts["accuracy"] == pytest.approx(correct.double().mean().item())
