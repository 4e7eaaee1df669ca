"""What analyses write of any model is read again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import editors
import numpy as np
import pytest
import torch
from examples import sentence, statistics, write_maps, write_statistics
from helpers import batch, build, build_language_model, cells_of, dictionary

from user_dir.analysis.importance import write_importance
from user_dir.analysis.maps import SIDES, read_map, read_maps
from user_dir.analysis.measuring import statistics_are_current
from user_dir.analysis.measuring import write_statistics as write_measured
from user_dir.analysis.results import (
    ModelAnalysis,
    beside,
    check_models,
    comparison_table,
    model_names,
    read_model,
    read_statistics,
    summary,
)
from user_dir.analysis.words import Pieces
from user_dir.attention.normalizers import NORMALIZERS
from user_dir.attention.normalizers.alpha_entmax import AlphaEntmax
from user_dir.attention.types import ATTENTION_TYPES
from user_dir.errors import UserError
from user_dir.models.heads import AlphaLog

FLAGS = [
    "--decoder-self-attention-normalizer rela --encoder-self-attention-normalizer fixed",
    "--latent-alignment",
    "--encoder-attention-heads 1 --decoder-attention-heads 1",
]


def split_of(model, words, sample: dict, folder: Path) -> SimpleNamespace:
    """A split of one batch, in corpus order."""
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
        pieces=lambda: pieces,
        samples=lambda in_order=False: iter([whole]),
    )


def models():
    for flags, marks in zip(FLAGS, ((), pytest.mark.nightly, pytest.mark.nightly)):
        yield pytest.param(lambda flags=flags: (build(flags), dictionary(), batch()), id=flags, marks=marks)
    for name in NORMALIZERS:
        make = lambda name=name: (build(f"--attention-normalizer {name}"), dictionary(), batch())  # noqa: E731
        yield pytest.param(make, id=name, marks=pytest.mark.nightly)
    language_model = lambda: (build_language_model(), dictionary(), batch())  # noqa: E731
    yield pytest.param(language_model, id="language model")
    post_editor = lambda: (editors.build(), editors.dictionary(), editors.batch())  # noqa: E731
    yield pytest.param(post_editor, id="post-editor")


@pytest.mark.parametrize("make", models())
def test_what_is_written_of_a_model_is_read(make, tmp_path):
    split = split_of(*make(), tmp_path)
    file, folder = tmp_path / "a.heads.json", tmp_path / "a.attention"
    report = write_measured(split, file, maps=folder)
    log = AlphaLog(str(tmp_path / "alpha.jsonl"), 1)
    for update in (0, 1):
        log.record(update, split.model.alpha_values())
    model = read_model("a", file, log.path, folder)
    assert model.statistics == report and model.trajectories.updates == [0, 1]
    assert set(summary(report)) == set(split.model.alpha_values())
    assert len(file.with_suffix(".csv").read_text().splitlines()) == 1 + len(report["heads"])
    assert [maps.text for maps in model.maps] == ["Ein Satz.", "", "Noch „einer“."]
    inputs, words = next(split.samples())["net_input"], split.task.source_dictionary
    for number, maps in enumerate(model.maps):
        real = [words[token] for token in inputs["src_tokens"][number].tolist() if token != words.pad()]
        assert maps.source == real
        assert set(maps.weights) == set(maps.alphas) == set(summary(report))
        for name, weights in maps.weights.items():
            assert weights.shape[2:] == tuple(len(getattr(maps, side)) for side in SIDES[name])
            assert maps.alphas[name].tolist() == split.model.alpha_values()[name]
            if isinstance(split.model.attentions()[name][0].normalizer, AlphaEntmax):
                assert np.allclose(weights.sum(-1), 1, atol=1e-5)
    assert write_importance(split, tmp_path / "a.json", points=2, random_orders=1)["sentences"] == 3


def test_maps_are_read_with_numpy_alone_and_named(tmp_path):
    sentences = [sentence(5, 4, seed=number) for number in range(11)]
    maps = read_maps(write_maps(tmp_path / "maps", sentences))
    assert len(maps) == 11 and maps[10].source == sentences[10].source
    arrays = np.load(tmp_path / "maps" / "10.npz", allow_pickle=False)
    for name in ATTENTION_TYPES:
        assert np.array_equal(arrays[name], sentences[10].weights[name])
    with pytest.raises(UserError, match="no encoder_self layer 0, head 3"):
        maps[0].head("encoder_self", 0, 3)
    (tmp_path / "maps" / "1.npz").write_bytes(b"cut")
    for number in (1, 11):
        with pytest.raises(UserError, match=rf"cannot read the attention maps .*{number}\.npz"):
            read_map(tmp_path / "maps" / f"{number}.npz")
    with pytest.raises(UserError, match=r"no attention maps .*none"):
        read_maps(tmp_path / "none")


def test_maps_of_training_text_have_no_lines_of_other_pairs(tmp_path):
    """Pairs that are dropped by their number of pieces are in the text, but in no batch."""
    split = split_of(build(), dictionary(), batch(), tmp_path)
    split.subset = split.name = "train"
    write_measured(split, tmp_path / "a.heads.json", maps=tmp_path / "maps")
    assert [maps.text for maps in read_maps(tmp_path / "maps")] == ["", "", ""]


def test_results_are_used_again_if_they_are_of_enough_sentences(tmp_path):
    """Statistics are of 50 sentences, maps of the first 3 of them."""
    checkpoint = tmp_path / "model.pt"
    checkpoint.touch()
    file = write_statistics(tmp_path / "model.valid.heads.json")
    maps = write_maps(tmp_path / "maps", [sentence(seed=i) for i in range(3)])
    assert statistics_are_current(file, maps, checkpoint, "multi30k", 3)
    assert not statistics_are_current(file, maps, checkpoint, "multi30k", 4)
    assert not statistics_are_current(file, maps, checkpoint, "tanaka", 3)
    os.utime(file, (1, 1))
    assert not statistics_are_current(file, maps, checkpoint, "multi30k", 3), "the checkpoint is newer"


def test_results_of_two_splits_are_not_combined(tmp_path):
    first = read_model("one", write_statistics(tmp_path / "one.heads.json"))
    other = statistics()
    other["subset"] = "exam"
    (tmp_path / "other.heads.json").write_text(json.dumps(other))
    with pytest.raises(UserError, match="different splits"):
        check_models([first, read_model("other", tmp_path / "other.heads.json")])
    maps = write_maps(tmp_path / "maps", [sentence(subset="test")])
    with pytest.raises(UserError, match="different splits"):
        check_models([read_model("one", tmp_path / "one.heads.json", maps=maps)])
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(UserError, match=r"list\.json is not a file of head statistics"):
        read_statistics(tmp_path / "list.json")


def test_results_of_parts_of_a_split_are_not_combined():
    few = {**statistics(), "sentences": 20}
    with pytest.raises(UserError, match=r"20 sentences\).*50 sentences\)"):
        check_models([ModelAnalysis("few", few), ModelAnalysis("all", statistics())])


def test_models_have_names_and_files():
    paths = [Path("/runs/a/average.heads.json"), Path("/runs/b/average.heads.json")]
    assert model_names(paths) == ["a/average", "b/average"]
    assert model_names(paths, ["x", "y"]) == ["x", "y"]
    with pytest.raises(UserError, match="both be called 'x'"):
        model_names(paths, ["x", "x"])
    with pytest.raises(UserError, match=r"1 names .* 2 models"):
        model_names(paths, ["x"])
    assert beside(Path("runs/a.valid.heads.json.bz2"), "attention") == Path("runs/a.valid.attention")


ROWS = [
    {"attention": kind, "layer": layer, "head": head, "alpha": 1 + layer / 2 + head / 4, "density": density}
    for kind, density in (("encoder_self", 1.0), ("decoder_context", 0.25))
    for layer in range(2)
    for head in range(2)
]


def test_systems_are_summarised_over_their_seeds():
    layers = [{"attention": row["attention"], "layer": row["layer"]} for row in ROWS[::2]]
    values = ((0.9, 0.1), (1.0, 0.3), (0.5, None), (0.5, None))
    for row, (union, diversity) in zip(layers, values):
        row |= {"union_density": union, "diversity": diversity}
    by_type = summary({"heads": ROWS, "layers": layers})
    assert by_type["encoder_self"] == {
        "heads": 4,
        "alpha_mean": 1.375,
        "alpha_min": 1.0,
        "alpha_max": 1.75,
        "density_mean": 1.0,
        "union_density": pytest.approx(0.95),
        "diversity": pytest.approx(0.2),
    }
    other = {kind: {**values, "density_mean": values["density_mean"] / 2} for kind, values in by_type.items()}
    assert cells_of(comparison_table({"ours": [by_type, other]}))[2:] == [
        ["ours", "encoder_self", "2", "4", "1.375", "1.00–1.75", "0.750 ± 0.354", "0.950", "0.200"],
        ["ours", "decoder_context", "2", "4", "1.375", "1.00–1.75", "0.188 ± 0.088", "0.500", ""],
    ]
