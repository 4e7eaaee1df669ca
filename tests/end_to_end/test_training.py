"""fairseq-train, fairseq-hydra-train and scripts/train.py."""

from __future__ import annotations

import re
import shutil

import pytest
import torch
import yaml
from commands import ROOT, fairseq, read_alpha_log, refused, script, train, train_with
from fairseq import checkpoint_utils
from helpers import whole_config
from same_training import assert_same_training, same, same_config

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow

ENTMAX = ["--disable-validation", "--no-epoch-checkpoints"]


def parameters(path) -> dict[str, torch.Tensor]:
    return load_checkpoint(path)["model"]


def train_losses(output: str) -> list[str]:
    return re.findall(r"\bloss=([\d.]+)", output)


@pytest.fixture(scope="module")
def through(corpus, tmp_path_factory):
    """An uninterrupted training of 8 updates, and its output."""
    folder = tmp_path_factory.mktemp("through")
    log = ["--alpha-log", folder / "alpha.jsonl", "--alpha-log-interval", "2"]
    log += ["--tensorboard-logdir", folder / "tb"]
    done = train(corpus, folder, *ENTMAX, *log, "--max-update", "8", anew="nightly")
    return folder, done.stdout + done.stderr


@pytest.mark.nightly  # by day: test_training_features.py and test_faults.py
def test_a_resumed_training_equals_an_uninterrupted_one(corpus, through, tmp_path):
    folder, _ = through
    log = ["--alpha-log", tmp_path / "alpha.jsonl", "--alpha-log-interval", "2"]
    train(corpus, tmp_path, *ENTMAX, *log, "--max-update", "5")
    with (tmp_path / "alpha.jsonl").open("a") as file:
        file.write('{"update": 6, "encoder_self": []}\n{"upda')  # as if killed after the last checkpoint
    train(corpus, tmp_path, *ENTMAX, *log, "--max-update", "8")
    assert_same_training(tmp_path, folder)


def test_alpha_log(through):
    folder, _ = through
    lines = read_alpha_log(folder / "alpha.jsonl")
    assert [line["update"] for line in lines] == [0, 2, 4, 6, 8]
    for line in lines:
        for attention_type in ("encoder_self", "decoder_self", "decoder_context"):
            alphas = torch.tensor(line[attention_type])
            assert alphas.shape == (2, 4)
            assert ((alphas > 1) & (alphas < 2)).all()
    first, last = (torch.tensor(lines[i]["encoder_self"]) for i in (0, -1))
    assert (first != last).any(), "no α has learned"
    model = parameters(folder / "checkpoint_last.pt")
    learned = 1 + torch.sigmoid(model["encoder.layers.1.self_attn.alpha.a"])
    assert torch.allclose(last[1], learned, atol=1e-6)


def test_alpha_in_log_line_and_tensorboard(through):
    folder, output = through
    for attention_type in ("encoder_self", "decoder_self", "decoder_context"):
        for name in ("mean", "min", "max"):
            assert re.search(rf"alpha_{attention_type}_{name}=1\.\d", output)
    events = b"".join(path.read_bytes() for path in folder.glob("tb/**/*tfevents*"))
    assert b"alpha_encoder_self_mean" in events


def test_hydra_train_equals_train(corpus, through, tmp_path):
    folder, output = through
    settings = {"common": {"log_format": "simple", "user_dir": str(ROOT / "user_dir")}}
    settings |= {"dataset": {"disable_validation": True}, "optimization": {"max_update": 8}}
    settings["model"] = {"alpha_lr_multiplier": 1.0, "alpha_log": None}
    (tmp_path / "config.d").mkdir()
    same_config(corpus, tmp_path, tmp_path / "config.d" / "same.yaml", **settings)
    named = ["--config-dir", tmp_path / "config.d", "--config-name", "same"]
    done = fairseq("hydra_train", *named, anew="nightly")
    losses = train_losses(done.stdout + done.stderr)
    assert len(losses) == 4
    assert losses == train_losses(output)
    assert same(parameters(tmp_path / "checkpoint_last.pt"), parameters(folder / "checkpoint_last.pt"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "flags",
    [
        ["--attention-normalizer", "sparsemax"],
        ["--fixed-alpha", "1.3", "--decoder-context-attention-normalizer", "softmax"],
        ["--alpha-tying", "model", "--alpha-lr-multiplier", "10"],
    ],
    ids=lambda flags: "_".join(flags).replace("--", ""),
)
def test_every_variant_trains_with_flags_only(corpus, tmp_path, flags):
    done = train(corpus, tmp_path, *ENTMAX, "--max-update", "4", *flags)
    losses = [float(loss) for loss in train_losses(done.stdout + done.stderr)]
    assert len(losses) == 2
    assert 0 < losses[1] < losses[0]


@pytest.mark.nightly
def test_scheduled_alpha_resumes(small, tmp_path):
    """With scheduled and learned α, the log of a resumed training equals that of an uninterrupted one.

    A checkpoint from the middle of the schedule has the α of its update.
    """
    schedule = ["--alpha-schedule", "cosine", "--alpha-schedule-updates", "6", "--max-update", "8"]
    schedule += ["--alpha-schedule-then", "learned", "--encoder-self-alpha-init", "1.3"]
    schedule += ["--save-interval-updates", "3"]
    through, resumed = tmp_path / "through", tmp_path / "resumed"
    for folder in (through, resumed):
        if folder is resumed:
            resumed.mkdir()
            shutil.copy(through / "checkpoint_1_3.pt", resumed / "checkpoint_last.pt")
            shutil.copy(through / "alpha.jsonl", resumed)
        log = ["--alpha-log", folder / "alpha.jsonl", "--alpha-log-interval", "1"]
        train(small, folder, *ENTMAX, *schedule, *log)
    assert_same_training(resumed, through)
    middle = [str(through / "checkpoint_1_3.pt")]
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task(middle, {"data": str(small / "bin")})
    assert models[0].alphas()["decoder_self"][0].tolist() == pytest.approx([1.25] * 4)
    lines = read_alpha_log(through / "alpha.jsonl")
    assert [line["update"] for line in lines] == list(range(9))
    alphas = [line["decoder_self"][0][0] for line in lines]
    assert alphas[:7] == pytest.approx([1.0, 1.033494, 1.125, 1.25, 1.375, 1.466506, 1.5], abs=1e-5)
    assert alphas[8] != alphas[6]
    assert lines[0]["encoder_self"] != lines[2]["encoder_self"]


def test_alpha_is_a_separate_group_of_the_composite_optimizer(corpus, tmp_path):
    """If its group has learning rate and weight decay 0, α keeps its initial value."""
    log = tmp_path / "alpha.jsonl"
    config = whole_config(ROOT / "configs/toy/alpha_entmax.yaml")
    config["optimizer"] = {
        "_name": "composite",
        "groups": {
            group: {
                "lr_float": rate,
                "optimizer": {"_name": "adam", "weight_decay": decay},
                "lr_scheduler": {"_name": "fixed"},
            }
            for group, rate, decay in (("default", 0.01, 0.5), ("alpha", 0.0, 0.0))
        },
    }
    config["lr_scheduler"] = {"_name": "pass_through"}
    config["task"]["data"] = str(corpus / "bin")
    config["model"].update(alpha_log=str(log), alpha_log_interval=1)
    config["checkpoint"] = {"save_dir": str(tmp_path), "no_epoch_checkpoints": True}
    config["dataset"].update(disable_validation=True, num_workers=0, max_tokens=500)
    path = tmp_path / "composite.yaml"
    path.write_text(yaml.safe_dump(config))
    train_with(path, "optimization.max_update=3")
    lines = read_alpha_log(log)
    assert [line["update"] for line in lines] == [0, 1, 2, 3]
    assert lines[0]["encoder_self"] == lines[3]["encoder_self"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--alpha-min", "1.8", "--alpha-max", "1.2"], ["alpha_min", "1.8", "1.2"]),
        (["--encoder-attention-heads", "5"], ["--encoder-attention-heads", "5", "32"]),
    ],
    ids=["model", "layer"],
)
def test_invalid_flags_end_with_an_error_message(corpus, tmp_path, flags, words):
    refused(train(corpus, tmp_path, *flags, check=False), *words)
    assert not list(tmp_path.iterdir())


def test_checkpoint_of_another_model_ends_with_an_error_message(corpus, through, tmp_path):
    folder, _ = through
    flags = ["--restore-file", folder / "checkpoint_last.pt", "--reset-optimizer", "--max-update", "9"]
    done = train(corpus, tmp_path, *flags, "--attention-normalizer", "softmax", check=False)
    refused(done, "alpha", "checkpoint")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("optimisation.max_update=3", ["optimisation"]),
        ("model.alpha_log=${nothing}", ["nothing"]),
    ],
)
def test_an_invalid_config_ends_with_an_error_message(change, words):
    """The script says it; what is invalid: ``test_config.py``."""
    refused(script("train", "configs/toy/alpha_entmax.yaml", change, check=False), *words)


@pytest.mark.nightly
def test_overrides_can_set_keys_that_the_config_does_not_have(corpus, tmp_path):
    """Also deletions in hydra's grammar, flags in between, and a relative path given from another folder."""
    words = ["../configs/toy/alpha_entmax.yaml", "model.encoder_layers=1", "--verbose"]
    words += ["~model.dropout", f"task.data={corpus / 'bin'}", f"checkpoint.save_dir={tmp_path}"]
    words += ["optimization.max_update=2", "dataset.disable_validation=true", "dataset.max_tokens=500"]
    done = script("train", *words, cwd=ROOT / "docs", anew=True)
    assert "num_updates: 2 >= max_update: 2" in done.stdout + done.stderr
    model = parameters(tmp_path / "checkpoint_last.pt")
    assert "encoder.layers.0.fc1.weight" in model
    assert "encoder.layers.1.fc1.weight" not in model
    assert (tmp_path / "alpha.jsonl").exists()
