"""What our own code writes of any model passes the checks of what is read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import post_editing
import pytest
import torch
from helpers import batch, build, build_language_model, dictionary

from user_dir.analysis.capture import row_sums
from user_dir.analysis.map_checks import TOLERANCE
from user_dir.analysis.maps import Maps
from user_dir.analysis.result_files import read_model
from user_dir.analysis.results import write_importance, write_statistics
from user_dir.analysis.trajectories import read_alpha_log
from user_dir.analysis.words import Pieces
from user_dir.attention.normalizers import NORMALIZERS
from user_dir.errors import UserError
from user_dir.models.alpha_log import AlphaLog

FLAGS = [
    *(f"--attention-normalizer {name}" for name in NORMALIZERS),
    "--fixed-alpha 1000",
    "--decoder-self-attention-normalizer rela --encoder-self-attention-normalizer fixed",
    "--latent-alignment",
    "--encoder-attention-heads 8 --attention-normalizer fixed",
    "--encoder-attention-heads 1 --decoder-attention-heads 1",
]


def split_of(model, words, sample: dict, folder: Path) -> SimpleNamespace:
    """A split of one batch, in corpus order; weights are scaled up, so that attention is far from uniform."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                parameter.mul_(8)
    text = folder / "valid.de"
    text.write_text("Ein Satz.\n\nNoch „einer“.\n", encoding="utf-8")
    names = ("src_tokens", "src_lengths", "prev_output_tokens")
    whole = {"id": torch.arange(3), "net_input": {name: sample[name] for name in names}}
    whole["target"] = sample["target"]
    pieces = tuple(Pieces(words, language) for language in ("de", "en"))
    facts = {"checkpoint": str(folder / "model.pt"), "update": 7, "corpus": "toy", "subset": "valid"}
    return SimpleNamespace(
        model=model.float().eval(),
        task=SimpleNamespace(source_dictionary=words, target_dictionary=words),
        facts={**facts, "source_lang": "de", "target_lang": "en"},
        name="valid",
        subset="valid",
        direction=("de", "en"),
        padding=words.pad(),
        corpus=SimpleNamespace(name="toy", text=lambda subset, language: text),
        pieces=lambda *_: pieces,
        samples=lambda *_, **__: iter([whole]),
    )


def models():
    yield from (
        pytest.param(lambda flags=flags: (build(flags), dictionary(), batch()), id=flags) for flags in FLAGS
    )
    for flags in ("", "--attention-normalizer rela"):
        yield pytest.param(
            lambda flags=flags: (build_language_model(flags), dictionary(), batch()),
            id=f"language model {flags}",
        )
    for flags in ("", "--drop-sep"):
        yield pytest.param(
            lambda flags=flags: (post_editing.build(flags), post_editing.dictionary(), post_editing.batch()),
            id=f"post-editor {flags}",
        )


@pytest.mark.parametrize("make", models())
def test_what_is_written_of_a_model_is_read(make, tmp_path):
    model, words, sample = make()
    split = split_of(model, words, sample, tmp_path)
    statistics, maps = tmp_path / "a.heads.json", tmp_path / "a.npz"
    report = write_statistics(split, statistics, maps=maps)
    importance = write_importance(split, tmp_path / "a.importance.json", points=3, random_orders=1)
    log = AlphaLog(str(tmp_path / "alpha.jsonl"), 1)
    for update in (0, 1):
        log.record(update, model.alpha_values())
    found = read_model(statistics)
    assert (found.statistics, found.importance) == (report, importance)
    assert found.trajectories.updates == read_alpha_log(log.path).updates == [0, 1]

    sums = row_sums(model)
    for sentence in Maps(maps):
        assert sentence.weights.keys() == sums.keys() == set(model.alpha_values())
        for name, weights in sentence.weights.items():
            rows = torch.from_numpy(weights).double().sum(-1)
            one = (rows - 1).abs() < TOLERANCE / 10  # far from the limit
            assert bool((one | (rows == 0)).all()) == (sums[name] != "any")
            assert bool((rows == 0).any() and one.any()) == (sums[name] == "zero or one")


def test_a_language_model_has_no_bleu(tmp_path):
    split = split_of(build_language_model(), dictionary(), batch(), tmp_path)
    split.checkpoint = tmp_path / "model.pt"
    with pytest.raises(UserError, match=r"model\.pt"):
        write_importance(split, tmp_path / "a.json", points=3, random_orders=1, bleu_beam=1)
