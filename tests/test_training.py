"""What is checked of a config before fairseq starts; the rest in end_to_end/test_training.py."""

import hydra
import pytest

from user_dir.errors import UserError
from user_dir.training import check_config


def test_hydra_of_fairseq_0_12(monkeypatch, tmp_path):
    monkeypatch.delattr(hydra, "initialize_config_dir")  # it came with hydra 1.1
    monkeypatch.setattr(hydra, "__version__", "1.0.7")
    with pytest.raises(UserError, match=r"hydra .* not 1\.0\.7"):
        check_config(tmp_path / "any.yaml", [], tmp_path)
