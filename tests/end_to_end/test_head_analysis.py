"""Statistics, importance and alignment of trained models, with their scripts."""

from __future__ import annotations

import csv
import json

import head_oracle
import numpy as np
import pytest
from commands import lines, of, script, train

from user_dir.analysis.words import interrogatives_of
from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow


def sentences_of(folder) -> list[dict]:
    """The maps of a ``--dump-attention`` folder, in the oracle's form."""
    sentences = []
    for number in range(len(list(folder.iterdir()))):
        arrays = np.load(folder / f"{number}.npz")
        sentence = {side: arrays[side].tolist() for side in ("source", "target_input", "target")}
        sentences.append({**sentence, "weights": {name: arrays[name] for name in head_oracle.SIDES}})
    return sentences


@pytest.mark.parametrize("model", ["trained", pytest.param("stock", marks=pytest.mark.nightly)])
def test_statistics_of_real_maps_agree_with_the_oracle(request, corpus, model, tmp_path):
    """For our model and the stock transformer, on the maps dumped by the same run."""
    checkpoint = request.getfixturevalue(model)
    checkpoint = checkpoint if checkpoint.suffix == ".pt" else checkpoint / "checkpoint_last.pt"
    where = [*of(checkpoint, corpus), "--output", tmp_path / "heads.json"]
    dump = ["--dump-attention", tmp_path / "maps", "--dump-sentences", "24", "--sentences", "24"]
    done = script("heads", *where, *dump, "--max-tokens", "100", anew="nightly")
    report = json.loads((tmp_path / "heads.json").read_text())
    assert (report["sentences"], report["source_lang"], report["target_lang"]) == (24, "de", "en")

    sentences = sentences_of(tmp_path / "maps")
    sides = (lines(corpus / "text" / "spm" / f"valid.{language}") for language in ("de", "en"))
    for sentence, line, target in zip(sentences, *sides):
        assert sentence["source"] == [*line.split(" "), "</s>"]
        assert sentence["target"] == [*target.split(" "), "</s>"]
        assert sentence["target_input"] == ["</s>", *target.split(" ")]
    lists = {"source": interrogatives_of("de"), "target_input": interrogatives_of("en")}
    assert len(report["heads"]) == 3 * 2 * 4
    for row in report["heads"]:
        where = row["attention"], row["layer"], row["head"]
        expected = head_oracle.head(sentences, *where, lists)
        head_oracle.assert_agree(row, expected, str(where), 1e-6)
        assert ("</s> sink" in row["roles"]) == (row["eos"] >= 0.5)
    for row in report["layers"]:
        expected = head_oracle.layer(sentences, row["attention"], row["layer"])
        head_oracle.assert_agree(row, expected, row["attention"], 1e-6)
    assert report["heads"][0]["interrogation"] is not None, "the sentences ask nothing"
    alphas = [row["alpha"] for row in report["heads"]]
    if model == "stock":
        assert set(alphas) == {1.0}
    else:
        assert all(1 < alpha < 2 for alpha in alphas)
        assert any(row["density"] < 0.9 for row in report["heads"])

    norms = load_checkpoint(checkpoint)["model"]["decoder.layers.1.encoder_attn.out_proj.weight"]
    assert report["heads"][-1]["output_norm"] == pytest.approx(float(norms[:, 24:].norm()), rel=1e-6)
    with (tmp_path / "heads.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["density"]) for row in rows] == [row["density"] for row in report["heads"]]
    assert rows[0]["roles"] == "; ".join(report["heads"][0]["roles"])
    assert "density_histogram" not in rows[0]
    assert "decoder_context: mean alpha" in done.stdout
    assert "</s> sink (eos >= 0.5)" in done.stdout
    assert "attention maps of 24 sentences" in done.stdout


SIX_HEADS = ["--encoder-layers", "1", "--decoder-layers", "1", "--disable-validation"]
SIX_HEADS += ["--encoder-attention-heads", "2", "--decoder-attention-heads", "2"]


@pytest.fixture(scope="module")
def six_heads(corpus, once):
    """A checkpoint with six heads."""
    flags = [*SIX_HEADS, "--max-update", "6", "--max-target-positions", "40"]
    return once("six-heads", lambda folder: train(corpus, folder, *flags)) / "checkpoint_last.pt"


def test_head_importance(corpus, six_heads, tmp_path):
    """Of the split with its public name; the figure is beside the JSON."""
    output = tmp_path / "importance.json"
    flags = ["--subset", "test", "--sentences", "11"]
    where = of(six_heads, corpus)
    done = script("heads", "--importance", *where, *flags, "--output", output, anew="nightly")
    report = json.loads(output.read_text())
    assert (report["subset"], report["sentences"]) == ("test", 11)
    assert len(report["heads"]) == 6
    for row in report["heads"]:
        assert row["importance"] == pytest.approx(row["loss"] - report["loss"], abs=1e-7)
    assert report["curves"]["random"]["pruned"] == [0, 1, 2, 3, 4, 5, 6]
    assert output.with_suffix(".svg").read_text().startswith("<?xml")
    assert "rank correlation (Spearman) of importance" in done.stdout
    assert f"loss {report['loss']:.4f}" in done.stdout


def test_align_by_the_script(corpus, six_heads, tmp_path):
    gold = tmp_path / "gold"
    gold.write_text("0-0 1?1\n" + "0-0\n" * 399)
    where = [*of(six_heads, corpus), "--sentences", "30"]
    done = script("align", *where, "--output", tmp_path / "out", "--gold", gold, anew="nightly")
    report = json.loads((tmp_path / "out" / "alignment.json").read_text())
    assert report["sentences"] == 30
    assert [row["name"] for row in report["candidates"]] == ["layer0-head0", "layer0-head1", "layer0", "all"]
    assert report["best_head"]["aer"] == min(row["aer"] for row in report["candidates"][:2])
    assert f"best head: {report['best_head']['name']}" in done.stdout
    sides = [lines(corpus / "text" / f"valid.{language}") for language in ("de", "en")]
    alignments = lines(tmp_path / "out" / "layer0.pharaoh")
    assert len(alignments) == 30
    for line, source, target in zip(alignments, *sides):
        for link in line.split():
            i, j = map(int, link.split("-"))
            assert i < len(source.split()) and j < len(target.split())
    script("align", *where, "--output", tmp_path / "in", "--query", "input")
    assert lines(tmp_path / "in" / "layer0.pharaoh") != alignments
    assert "best_head" not in json.loads((tmp_path / "in" / "alignment.json").read_text())
