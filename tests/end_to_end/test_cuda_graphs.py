"""Trainings on the buffers of CUDA graphs by ``fairseq-train`` and by a config: through, resumed, refused."""

import shutil

import pytest
from commands import fairseq, refused, train_with
from same_training import assert_same_training, same_config, same_flags

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

FLAGS = ["--max-update", "8", "--max-tokens", "300", "--save-interval-updates", "4", "--disable-validation"]


def config(small, folder, **model):
    settings = {
        "model": model,
        "dataset": {"max_tokens": 300, "disable_validation": True},
        "optimization": {"max_update": 8},
        "checkpoint": {"save_interval_updates": 4},
    }
    return same_config(small, folder, folder.parent / f"{folder.name}.yaml", **settings)


@pytest.fixture(scope="module")
def flags(small, tmp_path_factory):
    """A folder, and what the training printed."""
    folder = tmp_path_factory.mktemp("graphs") / "flags"
    done = fairseq("train", *same_flags(small, folder, *FLAGS, "--cuda-graphs", "on"))
    return folder, done.stdout + done.stderr


def test_the_log_line_has_what_was_replayed(flags):
    assert "replayed=" in flags[1] and "graphs=" in flags[1]


def test_a_config_trains_the_same_as_flags(flags, small, tmp_path):
    folder = tmp_path / "by_config"
    done = train_with(config(small, folder, cuda_graphs=True))  # YAML's on
    assert "buffers of CUDA graphs" in done.stdout + done.stderr
    assert_same_training(flags[0], folder)


def test_a_resumed_training_is_the_same(flags, small, tmp_path):
    folder = tmp_path / "resumed"
    folder.mkdir()
    shutil.copy(flags[0] / "checkpoint_1_4.pt", folder / "checkpoint_last.pt")
    shutil.copy(flags[0] / "alpha.jsonl", folder)
    fairseq("train", *same_flags(small, folder, *FLAGS, "--cuda-graphs", "on"))
    assert_same_training(flags[0], folder)


def test_what_cannot_be_recorded_is_refused(small, tmp_path):
    reason = ["--encoder-layerdrop", "0.5", "--cuda-graphs", "on"]
    folder = tmp_path / "flags"
    refused(fairseq("train", *same_flags(small, folder, *FLAGS, *reason), check=False), "layer drop", "off")
