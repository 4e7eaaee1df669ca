"""What linear layers multiply by: a rule, a measurement that is kept, or an override."""

import pytest
import torch

from user_dir.errors import UserError
from user_dir.modules import linear_choice as choice
from user_dir.modules.linear import has_onednn


@pytest.fixture(name="measured")
def _measured(monkeypatch, tmp_path):
    """On a processor that no rule is for: the ratios to be measured, and where the choice is kept."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    monkeypatch.setattr(choice, "processor", lambda: "vendor_id: GenuineIntel")
    ratios = []
    monkeypatch.setattr(choice, "time_of_onednn", lambda: ratios.pop())
    choice.prefers_onednn.cache_clear()
    yield ratios
    choice.prefers_onednn.cache_clear()


def in_another_process() -> bool:
    choice.prefers_onednn.cache_clear()
    return choice.prefers_onednn()


@pytest.mark.parametrize(("ratio", "by_onednn"), ((0.5, True), (0.99, False), (1.3, False)))
def test_the_first_measurement_counts(measured, ratio, by_onednn):
    measured.append(ratio)
    assert choice.prefers_onednn() is by_onednn
    assert in_another_process() is by_onednn  # nothing is measured again, or pop would fail
    measured.append(1.5 if by_onednn else 0.5)
    assert in_another_process() is by_onednn and measured


def test_of_two_that_measure_at_once_the_first_counts(measured, tmp_path, monkeypatch):
    path = tmp_path / "choice"

    def slow():
        path.write_text(choice.TORCH)  # by another process, meanwhile
        return 0.1

    monkeypatch.setattr(choice, "time_of_onednn", slow)
    assert choice.recorded(path)[0] == choice.TORCH


def test_a_cache_that_cannot_be_used(measured, tmp_path):
    (tmp_path / "cache").write_text("not a folder")
    measured.append(0.5)
    assert choice.prefers_onednn()
    measured.append(1.0)
    assert not in_another_process()


def test_a_damaged_file_is_measured_again(measured, tmp_path):
    (tmp_path / "choice").write_bytes(b"\xff\0onednn")
    measured.append(0.5)
    assert choice.recorded(tmp_path / "choice")[0] == choice.ONEDNN


def test_overrides_and_the_rule(measured, monkeypatch):
    for asked in (choice.ONEDNN, choice.TORCH):
        monkeypatch.setenv(choice.VARIABLE, asked)
        assert in_another_process() is (asked == choice.ONEDNN)
    monkeypatch.setenv(choice.VARIABLE, "mkl")
    with pytest.raises(UserError, match="mkl"):
        in_another_process()
    monkeypatch.setenv(choice.VARIABLE, "")
    monkeypatch.setattr(choice, "processor", lambda: "vendor_id: AuthenticAMD")
    assert in_another_process()


def test_the_measurement_leaves_random_numbers_alone():
    if not has_onednn():
        pytest.skip("this PyTorch has no oneDNN")
    before = torch.get_rng_state()
    assert 0.02 < choice.time_of_onednn() < 50
    assert torch.equal(before, torch.get_rng_state())
