"""Configs written for a corpus that has none: they pass the checks, fit its size, and overwrite nothing."""

from __future__ import annotations

import pytest
import yaml
from fairseq.data import Dictionary
from helpers import binarise

from user_dir.config import check_config
from user_dir.corpora import load_corpus
from user_dir.corpora.starter_configs import validation_bleu, write_configs


def prepared(root, pairs: int = 30, length: int = 9, name="talks", languages=("sl", "en"), lines=""):
    """A corpus that looks prepared: ``pairs`` sentences, the longer side of ``length`` tokens each."""
    folder = root / "data" / name
    (folder / "bin").mkdir(parents=True)
    splits = "splits: {train: 'a.{language}', valid: {held_out: 9}}"
    codes = ", ".join(f"'{language}'" for language in languages)
    (folder / "corpus.yaml").write_text(f"title: talks\nlanguages: [{codes}]\n{splits}\n{lines}")
    words = Dictionary()
    for i in range(20):
        words.add_symbol(f"▁{i}")
    for side, language in enumerate(languages):
        words.save(str(folder / "bin" / f"dict.{language}.txt"))
        for subset in ("train", "valid"):
            prefix = folder / "bin" / f"{subset}.{'-'.join(languages)}.{language}"
            binarise(prefix, pairs * [(length - 3 * side) * [5]])
    return load_corpus(name, root / "data")


def test_each_variant_passes_the_checks(tmp_path):
    last = write_configs(prepared(tmp_path, languages=("no", "en")), tmp_path)
    assert last == tmp_path / "configs" / "talks" / "alpha_entmax.yaml"
    for path in (last.with_name(f"{name}.yaml") for name in ("softmax", "entmax15", "alpha_entmax")):
        settings = check_config(path, [], tmp_path)
        assert path.read_text().startswith(f"# python scripts/train.py configs/talks/{path.name}\n")
        assert settings["task"]["data"] == "data/talks/bin"
        assert (settings["task"]["source_lang"], settings["task"]["target_lang"]) == ("no", "en")
        assert settings["checkpoint"]["save_dir"] == f"checkpoints/talks/{path.stem}"
        assert settings["model"]["attention_normalizer"] == path.stem.removeprefix("alpha_")
        assert settings["checkpoint"]["patience"] > 0 and settings["task"]["eval_bleu"] is True


def test_triplets_are_for_a_post_editor(tmp_path):
    corpus = prepared(tmp_path)
    path = corpus.folder / "corpus.yaml"
    path.write_text(path.read_text().replace("{language}", "{side}") + "origin: triplets\n")
    config = write_configs(load_corpus("talks", corpus.folder.parent), tmp_path)
    model = check_config(config, [], tmp_path)["model"]
    assert model["_name"] == "adaptively_sparse_post_editor_tiny" and model["bert"] is None
    settings = check_config(config, [], tmp_path)
    assert settings["ema"]["store_ema"] is True and model["ema_warmup"] is True
    assert not config.with_name("pretraining.yaml").exists()


@pytest.mark.parametrize(
    ("pairs", "per_epoch", "interval"),
    [(30, 1, 100), (5000, 26, 4), pytest.param(20_000, 104, None, marks=pytest.mark.nightly)],
)
def test_lengths_follow_from_the_training_text(tmp_path, pairs, per_epoch, interval):
    write_configs(prepared(tmp_path, pairs), tmp_path)
    text = (tmp_path / "configs/talks/base.yaml").read_text()
    settings = yaml.safe_load(text)
    assert f" {per_epoch} updates" in text  # of 9 tokens a pair, 85 % of 2048 in a batch
    assert settings["optimization"]["max_update"] == max(1000, 30 * per_epoch)
    assert settings["lr_scheduler"]["warmup_updates"] == settings["optimization"]["max_update"] // 4
    assert settings["dataset"].get("validate_interval") == interval
    assert settings["checkpoint"].get("save_interval") == interval


@pytest.mark.parametrize("tokenised", [False, True])
def test_validation_scores_text_as_the_corpus_has_it(tmp_path, tokenised):
    corpus = prepared(tmp_path, lines="tokenised: true" if tokenised else "")
    settings = yaml.safe_load(validation_bleu(corpus))
    assert settings.pop("eval_bleu") is True and settings.pop("eval_bleu_args")
    assert settings.pop("eval_bleu_remove_bpe") == "sentencepiece"
    assert settings == ({"eval_tokenized_bleu": True} if tokenised else {})
    check_config(write_configs(corpus, tmp_path), [], tmp_path)


def test_nothing_is_overwritten(tmp_path):
    corpus = prepared(tmp_path)
    path = write_configs(corpus, tmp_path).with_name("softmax.yaml")
    path.write_text("mine")
    path.with_name("entmax15.yaml").unlink()
    write_configs(corpus, tmp_path)
    assert path.read_text() == "mine" and path.with_name("entmax15.yaml").is_file()
