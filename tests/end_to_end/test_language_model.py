"""A language model trained, evaluated and analysed by commands."""

import json
import re

import pytest
from commands import PLUGIN, fairseq, here, lines, of, read_alpha_log, script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def language_model(corpus, tmp_path_factory):
    """A folder with the English side of the toy corpus as text for a language model, and a checkpoint."""
    folder = tmp_path_factory.mktemp("language_model")
    for split in ("train", "valid"):
        pieces = lines(corpus / "text" / "spm" / f"{split}.en")[:300]
        (folder / split).write_text("\n".join(pieces) + "\n")
    flags = ["--only-source", "--srcdict", corpus / "bin" / "dict.en.txt", "--destdir", folder / "bin"]
    here("preprocess", *flags, "--trainpref", folder / "train", "--validpref", folder / "valid")
    flags = (
        "--task language_modeling --sample-break-mode eos --tokens-per-sample 64 "
        "--arch adaptively_sparse_transformer_lm --decoder-embed-dim 32 --decoder-ffn-embed-dim 64 "
        "--decoder-layers 2 --decoder-output-dim 32 --decoder-input-dim 32 --decoder-attention-heads 4 "
        "--optimizer adam --lr 0.002 --max-tokens 1000 --max-update 6 --num-workers 0 --no-progress-bar "
        "--alpha-log-interval 3"
    )
    own = ["--save-dir", folder, "--alpha-log", folder / "alpha.jsonl"]
    fairseq("train", folder / "bin", *PLUGIN, *flags.split(), *own)
    return folder


def test_alpha_log(language_model):
    log = read_alpha_log(language_model / "alpha.jsonl")
    assert [line["update"] for line in log] == [0, 3, 6]
    assert all(set(line) == {"update", "decoder_self"} for line in log)


def test_eval_lm(language_model, caplog):
    flags = ["--path", language_model / "checkpoint_last.pt", "--gen-subset", "valid", "--cpu"]
    here("eval_lm", language_model / "bin", *PLUGIN, *flags, "--sample-break-mode", "eos")
    perplexity = float(re.search(r"Perplexity: ([\d.]+)", caplog.text)[1])
    assert 1 < perplexity < 1000


def test_head_statistics(language_model, corpus):
    checkpoint = language_model / "checkpoint_last.pt"
    flags = [*of(checkpoint, corpus), "--cpu", "--sentences", 30]
    script("heads", *flags, "--language", "en")
    report = json.loads((language_model / "checkpoint_last.valid.heads.json").read_text())
    assert {head["attention"] for head in report["heads"]} == {"decoder_self"}
    assert len(report["heads"]) == 8 and report["sentences"] == 30
    alphas = read_alpha_log(language_model / "alpha.jsonl")[-1]["decoder_self"]
    assert [head["alpha"] for head in report["heads"]] == pytest.approx(
        [alpha for layer in alphas for alpha in layer], abs=1e-5
    )
    assert all(0 < head["density"] <= 1 for head in report["heads"])
    script("heads", *flags, "--language", "de")
    script("report", *of(checkpoint, corpus), "--cpu", "--sentences", 2)
    report = json.loads((language_model / "checkpoint_last.valid.heads.json").read_text())
    assert report["target_lang"] == "de" and report["sentences"] > 30
    done = script("heads", *flags, "--language", "fr", check=False)
    assert done.returncode == 1 and "no language 'fr'" in done.stderr
