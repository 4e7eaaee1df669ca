"""Errors in a training config are reported before fairseq starts."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path

import hydra
import pytest
import yaml
from fairseq_cli import hydra_train
from helpers import binarised_toy, each_once, script_module, whole_config
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from user_dir.config import KEEP_MEMORY, check_config, check_settings, hydra_overrides
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "toy" / "alpha_entmax.yaml"


@pytest.fixture
def root(tmp_path):
    """A folder with data for the config."""
    return binarised_toy(tmp_path)


def check(root: Path, *changes: str, config: Path = CONFIG) -> None:
    check_config(config, hydra_overrides(config, changes), root)


VARIANTS = ("alpha_entmax", "entmax15", "softmax")
SHARED = {file for name in ("base", "size_*") for file in (ROOT / "configs").glob(f"*/{name}.yaml")}
CONFIGS = sorted({*(ROOT / "configs").glob("*/*.yaml")} - SHARED)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_our_configs_pass(config):
    """They open with their command and save where their name says."""
    assert config.read_text().startswith(f"# python scripts/train.py {config.relative_to(ROOT)}\n")
    settings, name = check_settings(config, []), config.parent.name
    assert settings["checkpoint"]["save_dir"] == f"checkpoints/{name}/{config.stem}"
    updates = settings["optimization"]["max_update"]
    assert settings["lr_scheduler"].get("total_num_update") in (None, updates)
    size, variant = re.fullmatch(r"(tiny_|base_|)(.*)", config.stem).groups()
    if size:
        names = {"tiny_": "adaptively_sparse_transformer_tiny", "base_": "adaptively_sparse_transformer"}
        assert settings["model"]["_name"] == names[size]
    if variant in VARIANTS:
        assert settings["model"]["attention_normalizer"] == variant.removeprefix("alpha_")
        assert updates > 0  # from base.yaml


def test_every_corpus_with_configs_has_all_variants():
    folders = {path.parent for path in CONFIGS}
    assert len(folders) > 8 and {folder / f"{name}.yaml" for folder in folders for name in VARIANTS} <= {
        *CONFIGS
    }


def test_data_that_is_not_prepared_is_missed(tmp_path):
    with pytest.raises(UserError, match="no binarised data in"):
        check(tmp_path)


@pytest.mark.parametrize(
    "name", ["toy/alpha_entmax", "kftt-ja-en/softmax", "tatmsdocs-de-en/base_alpha_entmax"]
)
def test_fairseq_trains_with_the_settings_that_were_checked(name, monkeypatch, tmp_path):
    """fairseq-hydra-train merges the config into its own defaults, which must not override base.yaml."""
    config, store, composed = ROOT / "configs" / f"{name}.yaml", ConfigStore.instance(), {}
    checked = check_settings(config, [])
    monkeypatch.setattr(store, "repo", copy.deepcopy(store.repo))  # fairseq adds its defaults to it
    monkeypatch.setattr(hydra_train, "_hydra_main", lambda settings: composed.update(settings))
    words = ["--config-dir", str(config.parent), "--config-name", config.stem, f"hydra.run.dir={tmp_path}"]
    words += ["hydra/job_logging=disabled", "hydra/hydra_logging=disabled"]
    monkeypatch.setattr(sys, "argv", ["fairseq-hydra-train", *words])
    hydra_train.cli_main()
    for section, settings in checked.items():
        found = OmegaConf.to_container(composed[section], resolve=True)
        assert {key: found[key] for key in settings} == settings


def test_a_config_of_one_file_is_the_same(root, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(whole_config(CONFIG)))
    check(root, config=path)
    assert check_settings(path, []) == check_settings(CONFIG, [])


@pytest.mark.parametrize(
    "mine, base, words",
    [
        ("defaults: [_self_, base]", None, ["mine.yaml", "base, but"]),
        ("defaults: [base, _self_]", "common: {seed: 1}", ["mine.yaml", "must begin with _self_"]),
        ("defaults: [base]", "common: {seed: 1}", ["mine.yaml", "must begin with _self_"]),
        ("defaults: [_self_, base]", "common: [", ["base.yaml is not valid YAML", "line 1"]),
        ("defaults: [_self_, base]", "common", ["base.yaml must have sections"]),
        (
            "{defaults: [_self_, base], common: {seed: 2}}",
            "common: {seed: 1}",
            ["mine.yaml", "base.yaml too"],
        ),
        ("defaults: [_self_, base]", "common: {sed: 1}", ["base.yaml", "common.sed"]),
        ("{defaults: [_self_, base], common: {sed: 2}}", "common: {seed: 1}", ["mine.yaml", "common.sed"]),
        ("defaults: [_self_, base]", "comon: {}", ["base.yaml", "unknown section 'comon'"]),
    ],
)
def test_invalid_shared_configs(tmp_path, mine, base, words):
    path = tmp_path / "mine.yaml"
    path.write_text(mine)
    if base:
        (tmp_path / "base.yaml").write_text(base)
    with pytest.raises(UserError) as caught:
        check_settings(path, [])
    assert str(caught.value).startswith(f"{tmp_path / words[0]}")  # the message starts with the invalid file
    for word in words:
        assert word in str(caught.value)


def test_the_file_of_a_wrong_setting_is_named(root, tmp_path):
    for part in ("base", "alpha_entmax"):
        (tmp_path / f"{part}.yaml").write_text((CONFIG.parent / f"{part}.yaml").read_text())
    base, mine = tmp_path / "base.yaml", tmp_path / "alpha_entmax.yaml"
    with pytest.raises(UserError, match=r"alpha_entmax\.yaml: model\.dropout must be a number, not 'much'"):
        check(root, "model.dropout=much", config=mine)
    base.write_text(base.read_text().replace("dropout: 0.1", "dropout: much"))
    with pytest.raises(UserError, match=r"base\.yaml, line 21: model\.dropout must be a number, not 'much'"):
        check(root, config=mine)


def test_a_config_with_its_data_passes(root):
    check(root, "optimization.max_update=5", "+dataset.num_workers=0", "optimization.lr=[0.1]")


@pytest.mark.parametrize(
    "change, words",
    [
        ("optimization.max_updates=5", ["unknown setting", "optimization.max_update?"]),
        ("max_update=5", ["'max_update'", "optimization.max_update?"]),
        ("optimization.lr=0.003", ["optimization.lr", "[0.003]"]),
        ("common.seed=012", ["common.seed", "'012'", "zero"]),
        ("optimization.max_update=many", ["optimization.max_update", "'many'"]),
        ("optimization.lr=high", ["optimization.lr", "'high'"]),
        ("criterion.label_smoothin=0.1", ["criterion.label_smoothin"]),
        ("criterion.label_smoothing=[1]", ["criterion.label_smoothing", "[1]"]),
        ("task.eval_blue=true", ["task.eval_blue"]),
        ("common=3", ["common must be a mapping of settings, not 3"]),
        ("dataset.max_tokens={a: 1}", ["dataset.max_tokens"]),
        ("model.adaptive_softmax_cutoff='print()'", ["model.adaptive_softmax_cutoff", "print()"]),
    ],
)
def test_settings_that_fairseq_does_not_have_are_named(root, change, words):
    with pytest.raises(UserError) as caught:
        check(root, change)
    assert "\n" not in str(caught.value)
    for word in [*words, str(CONFIG)]:
        assert word in str(caught.value)


FALSE, TRUE = ("no", "off", "n", "False", "0"), ("yes", "on", "Y", "true", "1")
SWITCHES = {
    "model": ("share_all_embeddings", "encoder_normalize_before", "decoder_normalize_before"),
    "task": ("eval_bleu", "left_pad_source", "truncate_source", "eval_bleu_print_samples"),
    "common": ("cpu", "fp16", "bf16"),
}


@pytest.mark.parametrize("shift", range(5))
def test_words_of_truth_mean_the_same_everywhere(tmp_path, shift):
    """Each word for some switch of each section, on the command line and in a file."""
    switches = [(section, name) for section, names in SWITCHES.items() for name in names]
    words = {each: (TRUE, FALSE)[i % 2][(i // 2 + shift) % 5] for i, each in enumerate(switches)}
    words["common", "bf16"] = "no"  # not both
    path, whole = tmp_path / "mine.yaml", whole_config(CONFIG)
    for (section, name), word in words.items():
        whole[section][name] = word if word not in "01" else int(word)
    path.write_text(yaml.safe_dump(whole))
    given = settings_with(*(f"{section}.{name}={word}" for (section, name), word in words.items()))
    for settings in (given, check_settings(path, [])):
        for (section, name), word in words.items():
            assert settings[section][name] is (word in TRUE), (section, name, word)


def settings_with(*changes: str) -> dict:
    return check_settings(CONFIG, hydra_overrides(CONFIG, changes))


@pytest.mark.parametrize(
    "change",
    [
        "model.share_all_embeddings=maybe",
        "model.encoder_normalize_before=2",
        "common.cpu=5",
        "common.cpu=[no]",
        "model.encoder_layers=1.5",
        "model.dropout=nan",
        "optimization.max_update=true",
        "dataset.max_tokens=(",
        "model.alpha_init=[1]",
        "optimization.lr=[no]",
    ],
)
def test_settings_of_another_type_are_named(change):
    key, _, value = change.partition("=")
    with pytest.raises(UserError) as caught:
        settings_with(change)
    assert key in str(caught.value) and value.strip("[]") in str(caught.value).lower().replace("'", "")


STRANGE = [
    "lr=0.1",
    "a,b",
    "a(b)",
    "a:b",
    "(",
    "[a]",
    "{a}",
    "{a: 1}",
    "a b",
    " a",
    "a'b",
    'a"b',
    "a\\",
    "a\\'b",
]
STRANGE += ["2016", "012", "1e5", "no", "true", "$a", "%d", "#1", "ä", "~a", "a=b=c", "choice(a,b)", "str(1)"]
STRANGE += ["a;b&c|d", "*?"]
TEXTS = ("checkpoint.save_dir", "model.alpha_log", "dataset.valid_subset", "common.wandb_project")


@pytest.mark.parametrize("first", range(0, len(STRANGE), len(TEXTS)))
def test_text_on_the_command_line_is_taken_literally(first):
    given = dict(zip(TEXTS, STRANGE[first:]))
    settings = settings_with(*(f"{key}={value}" for key, value in given.items()))
    for key, value in given.items():
        section, name = key.split(".")
        assert settings[section][name] == value


def test_the_model_says_what_a_text_may_be():
    with pytest.raises(UserError, match="attention-normalizer"):
        settings_with("model.attention_normalizer={a: 1}x=1,2(")


def test_quotes_null_and_references_are_read():
    settings = settings_with("checkpoint.save_dir='a b'", "model.alpha_log=null", 'task.data="x"')
    assert settings["checkpoint"]["save_dir"] == "a b" and settings["task"]["data"] == "x"
    assert settings["model"]["alpha_log"] is None
    settings = settings_with("model.alpha_log=${checkpoint.save_dir}/b=1", "checkpoint.save_dir=a=1")
    assert settings["model"]["alpha_log"] == "a=1/b=1"


def test_a_number_as_the_name_of_a_setting_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**whole_config(CONFIG), "common": {7: 1}}))
    with pytest.raises(UserError, match=r"unknown setting common\.7"):
        check_settings(path, [])


@pytest.mark.parametrize("override", ["++checkpoint.save_dir=a=b", "+a", "++common.seed=("])
def test_overrides_that_hydra_cannot_read_are_named(override):
    with pytest.raises(UserError) as caught:
        settings_with(override)
    assert override in str(caught.value)


@pytest.mark.parametrize(
    "line, words",
    [
        ("source_lang: no", ["task.source_lang", "text", "False", "quotes"]),
        ("source_lang: 12", ["task.source_lang", "text", "12", "quotes"]),
        ("eval_bleu: maybe", ["task.eval_bleu", "maybe"]),
        ("num_batch_buckets: 012", ["012"]),
        ("num_batch_buckets: 1:30", ["1:30"]),
    ],
)
def test_types_in_a_file_are_those_of_yaml(tmp_path, line, words):
    path = tmp_path / "mine.yaml"
    whole = whole_config(CONFIG)
    del whole["task"]["source_lang"], whole["task"]["eval_bleu"]
    text = yaml.safe_dump(whole).replace("\ntask:\n", f"\ntask:\n  {line}\n")
    path.write_text(text)
    number = text.split("\n").index(f"  {line}") + 1
    with pytest.raises(UserError) as caught:
        check_settings(path, [])
    for word in [*words, f"{path}, line {number}:"]:
        assert word in str(caught.value)


def test_corrupt_data_is_reported_before_training(root):
    (root / "data/toy/bin/valid.de-en.de.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"valid\.de-en\.de\.bin has 0 bytes, but"):
        check(root)


def test_hydra_before_1_1_is_refused(monkeypatch, tmp_path):
    monkeypatch.delattr(hydra, "initialize_config_dir")  # it came with hydra 1.1
    monkeypatch.setattr(hydra, "__version__", "1.0.7")
    with pytest.raises(UserError, match=r"hydra .* not 1\.0\.7"):
        check_config(tmp_path / "any.yaml", [], tmp_path)


LONG = "x" * 300


@pytest.mark.parametrize(
    "case",
    each_once(
        key=("checkpoint.save_dir", "common.log_file", "model.alpha_log"),
        value=("", LONG, f"{LONG}/a", "file/a", "/dev/null/a"),
    ),
)
def test_outputs_that_cannot_be_written(root, case):
    key, value = case.values()
    (root / "file").write_text("")
    with pytest.raises(UserError, match=rf"alpha_entmax\.yaml: {key} is "):
        check(root, f"{key}={value}")


def test_outputs_that_can_be_written_are_not_made_yet(root):
    check(root, "checkpoint.save_dir=new/a", "common.log_file=new/b", "model.alpha_log=new/c")
    assert not (root / "new").exists()


@pytest.mark.parametrize("value", ["", LONG, "/dev/null"])
def test_data_that_is_no_folder(root, value):
    with pytest.raises(UserError, match="no binarised data in"):
        check(root, f"task.data={value}")


def test_seeds_are_those_of_numpy(root):
    check(root, f"common.seed={2**32 - 1}")
    for seed in (-1, 2**32, 10**40):
        with pytest.raises(UserError, match=r"common\.seed is .*numpy takes 0 to 4294967295"):
            check(root, f"common.seed={seed}")


@pytest.mark.parametrize("own", [{}, {"MALLOC_MMAP_MAX_": "7"}], ids=["by default", "as set"])
def test_training_keeps_freed_memory(root, monkeypatch, own):
    script = script_module("train")
    started = {}
    monkeypatch.chdir(ROOT)  # the script changes the working directory
    monkeypatch.setattr(script, "ROOT", root)
    monkeypatch.setattr(script.os, "environ", own)
    monkeypatch.setattr(script.os, "execve", lambda program, command, env: started.update(env))
    script.main([str(CONFIG)])
    assert started.pop("PYTHONIOENCODING").endswith(":backslashreplace")  # the log contains α
    assert started.pop("ADAPTIVELY_SPARSE_LOG") == "short"
    assert started == {**KEEP_MEMORY, **own}


@pytest.mark.parametrize("arguments", [{"lenpn": 1}, {"lenpen": "1"}, {"beam": 1.5}, [1]], ids=str)
def test_the_search_of_validation(root, tmp_path, arguments):
    """Its settings are text, in which fairseq looks for the ones it knows."""
    good, bad = json.dumps({"beam": 1, "lenpen": 0.6}), json.dumps(arguments)
    check(root, f"task.eval_bleu_args='{good}'")
    with pytest.raises(UserError, match=r"task\.eval_bleu_args") as refusal:
        check(root, f"task.eval_bleu_args='{bad}'")
    assert (next(iter(arguments)) if isinstance(arguments, dict) else "[1]") in str(refusal.value)
    (tmp_path / "mine.yaml").write_text(
        f"task:\n  _name: translation\n  data: {root}\n  eval_bleu_args: '{bad}'\n"
    )
    with pytest.raises(UserError, match=r"mine\.yaml, line 4"):
        check(root, config=tmp_path / "mine.yaml")
