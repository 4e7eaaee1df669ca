"""Errors in a training config are reported before fairseq starts."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import yaml
from fairseq_cli import hydra_train
from helpers import binarised_toy, whole_config
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from user_dir.commands import train
from user_dir.config import check_config, hydra_override, training_arguments
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "toy" / "alpha_entmax.yaml"
VARIANTS = ("alpha_entmax", "entmax15", "softmax")
SHARED = {file for name in ("base", "size_*") for file in (ROOT / "configs").glob(f"*/{name}.yaml")}
CONFIGS = sorted({*(ROOT / "configs").glob("*/*.yaml")} - SHARED)
# By day one of each kind: masked language model, post-editor, translators.
OFTEN = ("mlqe-pe-en-de/pretraining", "multi30k-ape/softmax", "tatmsdocs-de-en/softmax", "toy/softmax")
OFTEN = [ROOT / "configs" / f"{name}.yaml" for name in OFTEN]


@pytest.fixture
def root(tmp_path):
    """A folder with data for the config."""
    return binarised_toy(tmp_path)


def settings_with(*changes: str, config: Path = CONFIG) -> dict:
    return check_config(config, list(map(hydra_override, changes)))


@pytest.mark.parametrize(
    "config",
    [path if path in OFTEN else pytest.param(path, marks=pytest.mark.nightly) for path in CONFIGS],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_our_configs_pass(config):
    """They open with their command and save where their name says."""
    assert config.read_text().startswith(f"# python scripts/train.py {config.relative_to(ROOT)}\n")
    settings, name = check_config(config, []), config.parent.name
    assert settings["checkpoint"]["save_dir"] == f"checkpoints/{name}/{config.stem}"
    updates = settings["optimization"]["max_update"]
    assert settings["lr_scheduler"].get("total_num_update") in (None, updates)
    variant = re.fullmatch(r"(?:tiny_|base_|)(.*)", config.stem)[1]
    if variant in VARIANTS:
        assert settings["model"]["attention_normalizer"] == variant.removeprefix("alpha_")


def test_data_that_is_not_prepared_is_missed(tmp_path):
    with pytest.raises(UserError, match="no binarised data in"):
        check_config(CONFIG, [], tmp_path)


def test_a_config_with_its_data_passes(root):
    assert check_config(CONFIG, [], root)["task"]["data"] == "data/toy/bin"


def test_a_folder_for_checkpoints_that_cannot_be_made_is_named(root):
    (root / "file").write_text("")
    with pytest.raises(UserError, match="file is no folder to write in"):
        training_arguments(CONFIG, ["checkpoint.save_dir=file/new"], root)


def test_fairseq_trains_with_the_settings_that_were_checked(root, monkeypatch):
    """They reach fairseq's own command, which composes the config once more."""
    changes = ["optimization.max_update=7", "checkpoint.save_dir=a=b, c", "model.encoder_layers=2"]
    store, executed, trained = ConfigStore.instance(), [], []
    monkeypatch.setattr(store, "repo", copy.deepcopy(store.repo))  # to which fairseq adds the config
    monkeypatch.chdir(root)
    monkeypatch.setattr(train, "ROOT", root)
    monkeypatch.setattr(train.os, "execve", lambda *arguments: executed.extend(arguments))
    train.main([str(CONFIG), *changes])
    _, command, environment = executed
    assert environment.items() >= train.MEMORY.items()
    monkeypatch.setattr("sys.argv", command[command.index(train.FAIRSEQ) :])
    monkeypatch.setattr(hydra_train.distributed_utils, "call_main", lambda cfg, *_, **__: trained.append(cfg))
    hydra_train.cli_main()
    cfg = OmegaConf.to_container(trained[0], resolve=True)
    assert cfg["optimization"]["max_update"] == 7 and cfg["model"]["encoder_layers"] == 2
    assert cfg["checkpoint"]["save_dir"] == "a=b, c"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("optimization.max_updates=5", ["optimization.max_updates", "optimization.max_update?"]),
        ("max_update=5", ["'max_update'"]),
        ("optimization.lr=high", ["optimization.lr", "'high'"]),
        ("common=3", ["common must have settings, not 3"]),
        ("model.share_all_embeddings=maybe", ["model.share_all_embeddings", "'maybe'"]),
        ("model._name=transformr", ["model._name", "did you mean transformer"]),
        ("optimizer._name=adamm", ["optimizer._name", "adam"]),
        ("++common.seed=(", ["common.seed"]),
    ],
)
def test_settings_that_fairseq_does_not_have_are_named(change, words):
    with pytest.raises(UserError) as caught:
        settings_with(change)
    assert "\n" not in str(caught.value)
    for word in [*words, str(CONFIG)]:
        assert word in str(caught.value)


def test_words_of_truth_mean_the_same_in_every_section(tmp_path):
    words = {("model", "share_all_embeddings"): "no", ("task", "eval_bleu"): "on", ("common", "cpu"): "yes"}
    path, whole = tmp_path / "mine.yaml", whole_config(CONFIG)
    for (section, name), word in words.items():
        whole[section][name] = word
    path.write_text(yaml.safe_dump(whole))
    overridden = settings_with(*(f"{section}.{name}={word}" for (section, name), word in words.items()))
    for settings in (overridden, check_config(path, [])):
        for (section, name), word in words.items():
            assert settings[section][name] is (word != "no"), (section, name)


@pytest.mark.parametrize("text", ("a,b", "a=b", "[x", "it's", "a\\b", "a\\b,c", "[\\\\'\\"))
def test_text_that_hydra_cannot_read_is_taken_literally(text):
    assert settings_with(f"checkpoint.save_dir={text}")["checkpoint"]["save_dir"] == text
