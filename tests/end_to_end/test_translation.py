"""Checkpoints with generate, interactive, validate, averaging and evaluation."""

from __future__ import annotations

import re
import shutil

import pytest
import sacrebleu
import torch
from commands import PLUGIN, evaluated_as_by_fairseq, fairseq, lines, of, refused, script, train, translated

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow


def generate(corpus, checkpoint, **options) -> str:
    bounds = "--gen-subset valid --beam 2 --max-len-a 0 --max-len-b 8 --num-shards 8 --shard-id 0"
    flags = [*PLUGIN, "--path", checkpoint, *bounds.split(), "--max-tokens", 2000]
    flags += ["--remove-bpe", "sentencepiece"]
    return fairseq("generate", corpus / "bin", *flags, **options).stdout


@pytest.mark.nightly
def test_checkpoints_with_eval_bleu_load_everywhere(corpus, trained, tmp_path):
    """weights_only is on by default, and nothing here turns it off."""
    best = trained / "checkpoint_best.pt"
    assert load_checkpoint(best)["extra_state"]["best"] is not None
    assert len(translated(generate(corpus, best, anew="nightly"))) > 20

    data = [corpus / "bin", *PLUGIN, "--path", best, "--source-lang", "de", "--target-lang", "en"]
    text = "Der Hund schläft.\nWer sieht die Katze?\n"
    pieces = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "spm.model"]
    interactive = fairseq(
        "interactive", *data, *pieces, "--max-len-b", "8", stdin=text, anew="nightly"
    ).stdout
    assert translated(interactive).keys() == {0, 1}

    validated = fairseq("validate", *data, "--task", "translation", "--max-tokens", "2000", anew="nightly")
    assert re.search(r"valid.*loss [\d.]+", validated.stdout + validated.stderr)

    resumed = tmp_path / "resumed"
    shutil.copytree(trained, resumed)
    output = train(corpus, resumed, "--max-update", "14", "--disable-validation")
    assert "num_updates 14" in output.stdout + output.stderr


def test_training_continues_from_a_stock_checkpoint_with_learned_alpha(corpus, stock, tmp_path):
    arch = "adaptively_sparse_transformer_wmt_en_de"  # post-norm, as stock is by default
    flags = ["--finetune-from-model", stock, "--alpha-init", "1.05", "--max-update", "3"]
    train(corpus, tmp_path, *flags, "--disable-validation", arch=arch)
    model = load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    assert model["encoder.layers.0.self_attn.alpha.a"].shape == (4,)
    before = load_checkpoint(stock)["model"]
    drift = (model["encoder.layers.0.fc1.weight"] - before["encoder.layers.0.fc1.weight"]).abs().max()
    assert 0 < drift < 0.01, "did not start from the stock weights"


def test_evaluate_scores_the_output_of_fairseq_generate(corpus, trained, tmp_path):
    """In a process that begins with the script, which nothing has prepared: of all sentences."""
    bounds = ["--beam", "2", "--max-len-b", "8"]
    flags = [*of(trained / "checkpoint_last.pt", corpus), *bounds, "--output", tmp_path]
    done = script("evaluate", *flags, anew=True)
    result = evaluated_as_by_fairseq(tmp_path, corpus, "test")
    assert f"BLEU {result['bleu']:.2f}" in done.stdout
    assert (result["sentences"], result["direction"]) == (400, "de-en")
    assert "tok:13a" in result["bleu_signature"]
    assert result["chrf_signature"].startswith("nrefs:1|case:mixed")
    texts, references = lines(tmp_path / "test.en"), lines(corpus / "text" / "test.en")
    assert result["bleu"] == round(sacrebleu.corpus_bleu(texts, [references]).score, 2)
    assert result["chrf"] == round(sacrebleu.corpus_chrf(texts, [references]).score, 2)


def test_average_is_the_mean(trained, tmp_path):
    inputs = sorted(trained.glob("checkpoint_*_*.pt"))
    assert len(inputs) == 2
    script("average", "--path", *inputs, "--output", tmp_path / "average.pt", anew="nightly")
    average = load_checkpoint(tmp_path / "average.pt")["model"]
    first, second = (load_checkpoint(path)["model"] for path in inputs)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    for name in average:
        assert torch.allclose(average[name], (first[name] + second[name]) / 2, atol=1e-7), name


def test_what_cannot_be_evaluated_ends_with_an_error_message(corpus, trained, stock, tmp_path):
    """Checkpoints that are none, or broken: ``test_hostile_files.py``."""
    last, cut = trained / "checkpoint_last.pt", tmp_path / "cut.pt"

    def evaluate(path, *flags):
        return script("evaluate", *of(path, corpus), *flags, check=False)

    cut.write_bytes(last.read_bytes()[:5000])
    refused(evaluate(cut), "cut.pt")
    refused(evaluate(stock, "--subset", "test_2016"), "'test_2016'", "train, valid, test")
    refused(evaluate(last, "--output", corpus / "text"), "a folder of the corpus")
    done = script("average", "--path", last, stock, "--output", tmp_path / "a.pt", check=False)
    refused(done, "different models")
    assert not (tmp_path / "a.pt").exists()
