"""What can be wrong with a training config is said before fairseq starts."""

from __future__ import annotations

from pathlib import Path

import hydra
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from helpers import dictionary, script_module

from user_dir.config import KEEP_MEMORY, check_config, hydra_override
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "toy" / "alpha_entmax.yaml"


@pytest.fixture
def root(tmp_path):
    """A folder with data where the config of the toy corpus has them."""
    folder = tmp_path / "data" / "toy" / "bin"
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        dictionary().save(str(folder / f"dict.{language}.txt"))
        for subset in ("train", "valid"):
            prefix = folder / f"{subset}.de-en.{language}"
            builder = MMapIndexedDatasetBuilder(f"{prefix}.bin")
            builder.add_item(torch.tensor([5, 6, 2]))
            builder.finalize(f"{prefix}.idx")
    return tmp_path


def check(root: Path, *changes: str, config: Path = CONFIG) -> None:
    check_config(config, [hydra_override(change) for change in changes], root)


@pytest.mark.parametrize(
    "config", sorted(ROOT.glob("configs/*/alpha_entmax.yaml")), ids=lambda path: path.parent.name
)
def test_our_configs_pass(config, tmp_path):
    with pytest.raises(UserError, match="no binarised data in"):
        check(tmp_path, config=config)


def test_a_config_with_its_data_passes(root):
    check(root, "optimization.max_update=5", "+dataset.num_workers=0", "optimization.lr=[0.1]")


@pytest.mark.parametrize(
    "change, words",
    [
        ("optimization.max_updates=5", ["optimization.max_updates", "not in"]),
        ("optimization.max_update=many", ["optimization.max_update", "'many'"]),
        ("optimization.lr=high", ["optimization.lr", "'high'"]),
        ("criterion.label_smoothin=0.1", ["criterion.label_smoothin"]),
        ("criterion.label_smoothing=[1]", ["criterion.label_smoothing", "[1]"]),
        ("task.eval_blue=true", ["task.eval_blue"]),
        ("common=3", ["common must hold settings, not 3"]),
        ("dataset.max_tokens={a: 1}", ["dataset.max_tokens"]),
        ("model.adaptive_softmax_cutoff='print()'", ["--adaptive-softmax-cutoff", "print()"]),
    ],
)
def test_settings_that_fairseq_does_not_have_are_named(root, change, words):
    with pytest.raises(UserError) as caught:
        check(root, change)
    assert "\n" not in str(caught.value)
    for word in [*words, str(CONFIG)]:
        assert word in str(caught.value) or (word == str(CONFIG) and "--" in words[0])


def test_broken_data_is_said_before_training(root):
    (root / "data/toy/bin/valid.de-en.de.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"valid\.de-en\.de\.bin has 0 bytes, but its index tells of"):
        check(root)


def test_hydra_of_fairseq_0_12(monkeypatch, tmp_path):
    monkeypatch.delattr(hydra, "initialize_config_dir")  # it came with hydra 1.1
    monkeypatch.setattr(hydra, "__version__", "1.0.7")
    with pytest.raises(UserError, match=r"hydra .* not 1\.0\.7"):
        check_config(tmp_path / "any.yaml", [], tmp_path)


@pytest.mark.parametrize("own", [{}, {"MALLOC_MMAP_MAX_": "7"}], ids=["by default", "as set"])
def test_training_keeps_its_memory(root, monkeypatch, own):
    script = script_module("train")
    started = {}
    monkeypatch.chdir(ROOT)  # the script changes it
    monkeypatch.setattr(script, "ROOT", root)
    monkeypatch.setattr(script.os, "environ", own)
    monkeypatch.setattr(script.os, "execve", lambda program, command, env: started.update(env))
    script.main([str(CONFIG)])
    assert started == {**KEEP_MEMORY, **own}
