"""The commands for the corpora of the paper: from miniatures to binarised data, training and scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import releases
import sacrebleu
from commands import ROOT, lines, of, read_alpha_log, script, train_with
from helpers import whole_config

from user_dir.corpora import load_corpus

pytestmark = pytest.mark.slow

VARIANTS = ("softmax", "entmax15", "alpha_entmax")
SIZES = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2}
SMALL = [f"model.{side}_{name}={size}" for side in ("encoder", "decoder") for name, size in SIZES.items()]
SMALL += ["dataset.max_tokens=100", "dataset.num_workers=0", "dataset.disable_validation=true"]
SMALL += ["optimization.max_update=4", "model.alpha_log_interval=2"]


@pytest.fixture(scope="session")
def prepared(once):
    """``prepared(name)``: a data folder with that corpus, from a miniature."""

    def prepare(name):
        def fill(folder):
            (folder / "raw").mkdir()
            releases.RELEASES[name](folder / "raw")
            size = ["--vocab-size", releases.vocabulary_size(name)]
            script("prepare", name, "--raw", folder / "raw", "--data", folder, *size)

        return once(f"paper-{name}", fill)

    return prepare


def trained(prepared, name: str, folder: Path) -> Path:
    """A checkpoint of four updates with a config on the miniature data."""
    settings = [f"task.data={prepared(name) / name / 'bin'}", f"checkpoint.save_dir={folder}"]
    train_with(ROOT / "configs" / name / "alpha_entmax.yaml", *settings, *SMALL)
    assert [line["update"] for line in read_alpha_log(folder / "alpha.jsonl")] == [0, 2, 4]
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize("name", releases.RELEASES)
def test_the_configs_have_the_settings_of_the_paper(name):
    """Base model, 8192 tokens per batch, 20,000 warm-up updates, dropout; variants differ in attention."""
    configs = []
    for variant in VARIANTS:
        config = whole_config(ROOT / "configs" / name / f"{variant}.yaml")
        assert config["model"]["_name"] == "adaptively_sparse_transformer"
        assert config["dataset"]["max_tokens"] * config["optimization"]["update_freq"][0] == 8192
        assert config["lr_scheduler"]["_name"] == "inverse_sqrt"
        assert config["lr_scheduler"]["warmup_updates"] == 20000
        dropouts = {config["model"][f"{place}dropout"] for place in ("", "attention_", "activation_")}
        assert len(dropouts) == 1 and dropouts < {0.1, 0.3}, "in all the places of the authors' code"
        assert config["task"]["data"] == f"data/{name}/bin"
        assert config["checkpoint"].pop("save_dir") == f"checkpoints/{name}/{variant}"
        corpus = load_corpus(name)
        assert (config["task"]["source_lang"], config["task"]["target_lang"]) == corpus.languages
        for key in ("attention_normalizer", "alpha_log", "alpha_log_interval"):
            config["model"].pop(key, None)
        configs.append(config)
    assert configs[0] == configs[1] == configs[2]


def evaluated(prepared, name, output) -> dict:
    corpus = load_corpus(name, prepared(name))
    model = of(trained(prepared, name, output / "run"), corpus.folder)
    search = ["--subset", next(iter(corpus.test_sets)), "--beam", "2", "--max-len-b", "8"]
    done = script("evaluate", *model, *search, "--output", output)
    (output / "said").write_text(done.stdout)
    return json.loads(next(output.glob("*.json")).read_text())


def test_tokenised_corpora_are_scored_on_natural_text(prepared, tmp_path):
    result = evaluated(prepared, "kftt-ja-en", tmp_path)
    corpus = load_corpus("kftt-ja-en", prepared("kftt-ja-en"))
    natural, tokens = lines(tmp_path / "test.en"), lines(tmp_path / "test.tok.en")
    assert result["references"].endswith("text/reference/test.en")
    ours = sacrebleu.corpus_bleu(natural, [lines(corpus.reference("test", "en"))])
    assert result["bleu"] == round(ours.score, 2)
    theirs = sacrebleu.corpus_bleu(tokens, [lines(corpus.text("test", "en"))], tokenize="none", force=True)
    assert result["tokenized_bleu"] == round(theirs.score, 2)
    assert result["tokenized_bleu_tokens"] == "the release"
    assert "tok:none" in result["tokenized_bleu_signature"]
    said = (tmp_path / "said").read_text()
    assert f"tokenized BLEU {result['tokenized_bleu']:.2f}" in said and "on tokens of the release" in said


@pytest.mark.nightly
def test_lower_cased_corpora_are_scored_in_lower_case(prepared, tmp_path):
    result = evaluated(prepared, "iwslt14-de-en", tmp_path)
    assert "case:lc" in result["bleu_signature"] and "tok:13a" in result["bleu_signature"]
    assert "case:lc" in result["chrf_signature"]
    assert result["tokenized_bleu_tokens"].startswith("Moses (sacremoses ")
    assert result["sentences"] == 5 * releases.TEST
