"""Post-editing from raw triplets to TER: prepare, pretrain, fine-tune, evaluate, translate, analyse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sacrebleu
import torch
from commands import (
    PLUGIN,
    ROOT,
    evaluated_as_by_fairseq,
    fairseq,
    lines,
    of,
    randomised,
    refused,
    script,
    train_with,
)
from triplets import DESCRIPTION, MT, PE, SRC, write_triplets

from user_dir.checkpoints import load_checkpoint
from user_dir.corpora import load_corpus
from user_dir.corpora.starter_configs import write_configs

pytestmark = pytest.mark.slow
SIZES = ["--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32", "--encoder-layers", "2"]
SIZES += ["--encoder-attention-heads", "4", "--max-source-positions", "60"]
SMALL = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 4}  # the same in a config
TRAINING = ["--optimizer", "adam", "--lr", "0.01", "--max-update", "3", "--max-tokens", "400"]
TRAINING += ["--no-progress-bar", "--num-workers", "0", "--no-epoch-checkpoints", "--seed", "3"]
TRAINING += ["--log-interval", "1"]
SHORT = ["--beam", "2", "--max-len-b", "5"]


@pytest.fixture(scope="module")
def triplets(once) -> Path:
    """The tiny triplets, prepared with text to pretrain on."""

    def fill(folder):
        write_triplets(folder / "raw")
        (folder / "data" / "mine").mkdir(parents=True)
        keys = "vocabulary_size: 90\npretraining: [train.src, train.pe, {src: train.src, mt: train.pe}]\n"
        (folder / "data" / "mine" / "corpus.yaml").write_text(DESCRIPTION + keys)
        script("prepare", "mine", "--raw", folder / "raw", "--data", folder / "data")

    return once("triplets", fill) / "data" / "mine"


@pytest.fixture(scope="module")
def trained(triplets, once) -> Path:
    """A folder with a pretrained encoder, bert.pt, and a post-editor trained from it for three updates."""

    def fill(folder):
        save = ["--save-dir", folder, *PLUGIN]
        flags = "--task masked_lm --criterion masked_lm --sample-break-mode eos --tokens-per-sample 60"
        flags += " --arch adaptively_sparse_masked_lm --attention-normalizer softmax"
        fairseq("train", triplets / "pretraining", *flags.split(), *SIZES, *TRAINING, *save)
        (folder / "checkpoint_last.pt").rename(folder / "bert.pt")
        (folder / "checkpoint_best.pt").unlink()
        flags = "--source-lang en --target-lang de --arch adaptively_sparse_post_editor --clip-norm 1"
        flags += " --share-self-attention --max-target-positions 40 --criterion label_smoothed_cross_entropy"
        flags += " --store-ema --ema-decay 0.9 --ema-fp32 --ema-warmup"
        bert = ["--bert", folder / "bert.pt"]
        fairseq("train", triplets / "bin", *flags.split(), *bert, *SIZES, *TRAINING, *save)

    return once("post_editor", fill)


@pytest.fixture(scope="module")
def editor(trained, tmp_path_factory) -> Path:
    """The trained model with random weights, so that every sentence has a translation of its own."""
    return randomised(trained / "checkpoint_last.pt", tmp_path_factory.mktemp("random") / "random.pt", 2, 0.5)


def test_the_steps_of_the_page_work_with_own_triplets(triplets, tmp_path):
    """From the configs of ``prepare.py --config`` to TER, with fewer updates and a smaller model."""
    mine = load_corpus("mine", triplets.parent)
    write_configs(mine, tmp_path)
    (config,) = tmp_path.rglob("alpha_entmax.yaml")
    changes = [f"model.encoder_{name}={value}" for name, value in SMALL.items()]
    changes += ["optimization.max_update=3", "dataset.num_workers=0"]
    train_with(config, *changes, root=tmp_path)
    average = Path("checkpoints") / "mine" / "alpha_entmax" / "average.pt"
    last = average.with_name("checkpoint_last.pt")
    script("average", "--ema", "--path", last, "--output", average, cwd=tmp_path)
    done = script("evaluate", "--path", average, *SHORT, cwd=tmp_path)  # the corpus of training
    assert "uncorrected: BLEU" in done.stdout
    done = script("translate", *of(average, triplets), *SHORT, f"{SRC[0]}\t{MT[0]}", cwd=tmp_path)
    assert done.stdout.count("\n") == 1


def test_training_starts_from_the_bert(trained):
    """Three updates of at most 0.01 each away."""
    bert, model = (load_checkpoint(trained / name)["model"] for name in ("bert.pt", "checkpoint_last.pt"))
    inputs = ("layers.1.fc2", "input_positions.positions", "layers.0.self_attn.k_proj")
    for name in (f"{module}.weight" for module in inputs):
        drift = (bert[f"encoder.{name}"] - model[f"encoder.{name}"]).abs().max()
        assert 0 < drift < 0.04, name
    sides = (model[f"{side}.layers.0.self_attn.q_proj.weight"] for side in ("decoder", "encoder"))
    assert torch.equal(*sides)


@pytest.mark.nightly
def test_a_copier_learns_by_the_settings_for_a_published_bert(triplets, trained, tmp_path):
    """Two learning rates; from a BERT that it does not know, it begins with the machine translations."""
    config = ROOT / "configs" / "mlqe-pe-en-de" / "minilm.yaml"
    changes = [f"task.data={triplets / 'bin'}", f"model.bert={trained / 'bert.pt'}", "common.log_interval=1"]
    changes += [f"model.encoder_{name}={value}" for name, value in SMALL.items()]
    changes += [f"checkpoint.save_dir={tmp_path}", "optimization.max_update=2", "dataset.num_workers=0"]
    train_with(config, *changes, root=tmp_path)
    bert, last = (load_checkpoint(path) for path in (trained / "bert.pt", tmp_path / "checkpoint_last.pt"))
    names = "encoder.layers.1.fc2.weight", "decoder.layers.0.encoder_attn.q_proj.weight"
    theirs = [bert["model"][f"encoder.layers.{name}.weight"] for name in ("1.fc2", "0.self_attn.q_proj")]
    rates = {"bert": 1e-4, "default": 5e-4}  # warm-up by 1/100 and 2/100
    for name, start in zip(names, theirs):
        assert 0 < (last["model"][name] - start).abs().max() < rates["bert"] / 30
    jumps = last["model"]["decoder.copy_gate.jumps"]
    assert rates["bert"] / 30 < (jumps - 2.0 * jumps.gt(1)).abs().max() < rates["default"] / 30
    where = [*of(tmp_path / "checkpoint_last.pt", triplets), "--output", tmp_path / "scores"]
    script("evaluate", *where, "--beam", "2", "--new-piece-penalty", "valid")
    result = evaluated_as_by_fairseq(tmp_path / "scores", triplets, "exam")
    assert lines(tmp_path / "scores" / "exam.de") == MT
    assert result["ter"] == result["uncorrected"]["ter"] == result["new_piece_penalties"]["8"]


def test_evaluate_scores_the_system_and_the_uncorrected_translations(triplets, editor, tmp_path):
    where = [*of(editor, triplets), "--output", tmp_path]
    said = script("evaluate", *where, "--beam", "3", "--new-piece-penalty", "2").stdout
    result = evaluated_as_by_fairseq(tmp_path, triplets, "exam")
    translations, ter = lines(tmp_path / "exam.de"), sacrebleu.metrics.TER(case_sensitive=True)
    assert result["ter"] == round(ter.corpus_score(translations, [PE]).score, 2)
    assert result["uncorrected"]["ter"] == round(ter.corpus_score(MT, [PE]).score, 2)
    assert sum(result["changes"].values()) == len(PE)
    assert f"TER  {result['ter']:.2f}" in said and "uncorrected: BLEU" in said and "0 left alone" in said
    assert result["new_piece_penalty"] == 2


def test_the_penalty_keeps_to_the_pieces_of_the_input(triplets, editor, tmp_path):
    where = [*of(editor, triplets), "--output", tmp_path]
    script("evaluate", *where, "--beam", "2", "--new-piece-penalty", "900")
    inputs = lines(triplets / "text" / "spm" / "test.en")
    bpe = [line.split() for line in inputs]
    translations = lines(tmp_path / "exam.de")
    assert any(translations)
    for text, pieces in zip(translations, bpe):
        letters = set("".join(pieces).replace("▁", ""))
        assert set(text.replace(" ", "")) <= letters


def test_translate_reads_source_tab_translation(triplets, editor, tmp_path):
    where = ["--path", editor, "--beam", "2"]
    script("evaluate", *where, "--corpus", "mine", "--data", triplets.parent, "--output", tmp_path)
    pairs = [f"{src}\t{mt}" for src, mt in zip(SRC, MT)]
    done = script("translate", *where, pairs[0], "", *pairs[1:])
    expected = lines(tmp_path / "exam.de")
    assert done.stdout.split("\n")[:-1] == [expected[0], "", *expected[1:]]
    refused(script("translate", *where, *pairs[:2], "no tab", check=False), "line 3")


def test_heads_are_analysed(triplets, editor, tmp_path):
    where = [*of(editor, triplets), "--subset", "exam"]
    script("heads", *where, "--output", tmp_path / "heads.json")
    heads = json.loads((tmp_path / "heads.json").read_text())["heads"]
    assert len(heads) == 3 * 2 * 4
    assert all(0 < head["density"] <= 1 for head in heads)
