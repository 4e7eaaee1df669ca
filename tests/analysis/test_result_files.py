"""Statistics, α log and attention maps must be complete and of the same model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from examples import importance, sentence, statistics, write_alpha_log, write_maps, write_statistics
from helpers import write_packed

from user_dir.analysis.columns import COLUMNS, MASSES, PART_COLUMNS
from user_dir.analysis.head_rows import MAX_ALPHA
from user_dir.analysis.importance_file import read_importance
from user_dir.analysis.maps import Maps
from user_dir.analysis.result_files import (
    ModelAnalysis,
    check_same_model,
    check_same_sentences,
    check_same_split,
    read_model,
    result_file,
)
from user_dir.analysis.statistics_file import read_statistics
from user_dir.analysis.trajectories import Trajectories
from user_dir.attention import AlphaConfig
from user_dir.attention_types import ATTENTION_TYPES
from user_dir.errors import UserError


def log(layers: int = 2, heads: int = 3) -> Trajectories:
    return Trajectories([0, 10], {name: np.full((2, layers, heads), 1.5) for name in ATTENTION_TYPES})


def maps(path, layers: int = 2, **about) -> Maps:
    return Maps(write_maps(path, [sentence(layers=layers)], **about))


def test_files_of_one_model_are_accepted(tmp_path):
    check_same_model(ModelAnalysis("a", statistics(), log(), maps(tmp_path / "a.npz")))
    check_same_model(ModelAnalysis("a", statistics()))


def test_files_of_another_model_are_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"α log of a have layers and heads encoder_self 3×3, .* statistics encoder_self 2×3"
    ):
        check_same_model(ModelAnalysis("a", statistics(), log(layers=3)))
    with pytest.raises(UserError, match=r"α log of a have .*encoder_self 2×4"):
        check_same_model(ModelAnalysis("a", statistics(), log(heads=4)))
    with pytest.raises(UserError, match=r"attention maps of a have .*encoder_self 1×3"):
        check_same_model(ModelAnalysis("a", statistics(), maps=maps(tmp_path / "a.npz", layers=1)))


def test_files_of_different_splits_are_not_combined(tmp_path):
    valid, test = (
        maps(tmp_path / f"{name}.npz", corpus="multi30k", subset=name) for name in ("valid", "test")
    )
    old = maps(tmp_path / "old.npz")
    ours = ModelAnalysis("ours", statistics(), maps=valid)
    check_same_split([ours, ModelAnalysis("theirs", statistics(), maps=old)])
    check_same_sentences([valid, old, valid], [0])
    splits = r"different splits cannot be combined: .*\(multi30k, valid\) and .*\({}\); write them"
    with pytest.raises(UserError, match=splits.format("multi30k, test")):
        check_same_split([ModelAnalysis("ours", statistics(), maps=test)])
    for other in ({"subset": "test"}, {"corpus": "tanaka"}):
        found = {**statistics(), **other}
        named = splits.format(f"{found['corpus']}, {found['subset']}")
        with pytest.raises(UserError, match=named):
            check_same_split([ours, ModelAnalysis("theirs", found)])
    with pytest.raises(UserError, match=splits.format("multi30k, test")):
        other = {**importance(), "subset": "test"}
        check_same_split([ModelAnalysis("ours", statistics(), importance=other)])
    with pytest.raises(UserError, match=splits.format("multi30k, test")):
        check_same_sentences([old, valid, test], [0])


def test_results_of_different_splits_never_share_a_file(tmp_path):
    checkpoint = tmp_path / "checkpoint.best_bleu_36.2.pt"
    named = result_file(checkpoint, "valid", "heads.json")
    assert named == tmp_path / "checkpoint.best_bleu_36.2.valid.heads.json"
    assert named != result_file(checkpoint, "test_2016_flickr", "heads.json")


def first(report: dict, **values) -> None:
    report["heads"][0].update(values)


def change_role(report: dict, **values) -> None:
    report["roles"]["</s> sink"]["heads"][0].update(values)


STATISTICS_FAULTS = [
    (lambda report: report.pop("layers"), "layers"),
    (lambda report: report["heads"].clear(), "heads"),
    (lambda report: report["heads"][0].pop("density"), "density"),
    (lambda report: report["heads"][0].pop("density_histogram"), "density_histogram"),
    (lambda report: first(report, density="x"), "'x'"),
    (lambda report: first(report, density=1.25), "1.25"),
    (lambda report: first(report, density=-0.25), "-0.25"),
    (lambda report: first(report, density_std=-0.25), "-0.25"),
    (lambda report: first(report, density_of_pairs=1.5), "1.5"),
    (lambda report: first(report, eos="much"), "'much'"),
    (lambda report: first(report, eos=1.5), "eos is 1.5"),
    (lambda report: first(report, eos=float("nan")), "nan"),
    (lambda report: first(report, eos=True), "True"),
    (lambda report: first(report, eos=10**400), "eos"),
    (lambda report: first(report, entropy=-0.5), "-0.5"),
    (lambda report: first(report, entropy=float("inf")), "inf"),
    (lambda report: first(report, output_norm=-1), "-1"),
    (lambda report: first(report, subword_merging=2), "subword_merging is 2"),
    (lambda report: first(report, on_source=-1.0), "on_source"),
    (lambda report: first(report, alpha=0.5), "0.5"),
    (lambda report: first(report, alpha=1e9), "1000000000"),
    (lambda report: first(report, alpha=None), "None"),
    (lambda report: first(report, colour=0.5), "'colour'"),
    (lambda report: first(report, layer=-1), "layer is -1"),
    (lambda report: first(report, layer=True), "layer is True"),
    (lambda report: first(report, layer=10**6), "1000000"),
    (lambda report: first(report, attention="self"), "'self'"),
    (lambda report: first(report, attention=["encoder_self"]), "attention"),
    (lambda report: first(report, roles="sink"), "'sink'"),
    (lambda report: report["heads"].append(report["heads"][0]), "encoder_self layer 0 head 0 occurs twice"),
    (lambda report: report["heads"].pop(1), "encoder_self lacks"),
    (lambda report: report["heads"].insert(0, []), "heads[0]"),
    (lambda report: report["heads"][0]["density_histogram"].append(1), "encoder_self layer 0 head 0"),
    (lambda report: report["heads"][0]["density_histogram"].__setitem__(0, 51), "encoder_self layer 0 head"),
    (lambda report: report["heads"][0]["density_histogram"].__setitem__(0, -1), "-1"),
    (lambda report: report.update(sentences=49), "49"),
    (lambda report: report.update(sentences=0), "sentences is 0"),
    (lambda report: report.update(subset=["valid"]), "subset"),
    (lambda report: report.update(update=-3), "-3"),
    (lambda report: report.update(row_sums={"encoder_self": "two"}), "'two'"),
    (lambda report: report["layers"][0].update(union_density=None), "None"),
    (lambda report: report["layers"][0].update(union_density=1.5), "1.5"),
    (lambda report: report["layers"][0].update(diversity=-0.5), "-0.5"),
    (lambda report: report["layers"][0].update(sorted_densities=[0.1, 0.2, 0.3]), "sorted_densities"),
    (lambda report: report["layers"][0].update(width=1), "'width'"),
    (lambda report: report["layers"][0].update(layer=[0]), "layers[0]"),
    (lambda report: report["layers"].pop(), "decoder_context layer 1 is missing"),
    (lambda report: report["layers"][1].update(layer=0), "layers[1]"),
    (lambda report: report.update(roles=[]), "roles"),
    (lambda report: change_role(report, value=0.5), "0.5"),
    (lambda report: change_role(report, head=77), "head 77"),
    (lambda report: report["roles"]["</s> sink"].update(threshold=float("nan")), "nan"),
    (lambda report: report["roles"]["</s> sink"].update(measure="x"), "x"),
    (lambda report: report.update(measures={"eos": 1}), "measures.eos"),
]


@pytest.mark.parametrize("change, word", STATISTICS_FAULTS)
def test_errors_in_statistics_are_named(tmp_path, change, word):
    path = tmp_path / "a.heads.json"
    report = statistics()
    path.write_text(json.dumps(report))
    assert read_statistics(path) == report
    change(report)
    path.write_text(json.dumps(report))
    with pytest.raises(UserError, match=r"a\.heads\.json .*head_stats\.py") as caught:
        read_statistics(path)
    assert word in str(caught.value) and len(str(caught.value)) < 500 + len(str(path))


def test_the_order_of_rows_is_of_no_importance(tmp_path):
    """α logs and figures go by place."""
    path = write_statistics(tmp_path / "a.heads.json")
    expected = read_statistics(path)
    found = json.loads(path.read_text())
    for rows in (found["heads"], found["layers"]):
        rows.reverse()
    path.write_text(json.dumps(found))
    assert read_statistics(path) == expected


def test_a_key_that_occurs_twice_is_named(tmp_path):
    path = write_statistics(tmp_path / "a.heads.json")
    path.write_text(path.read_text().replace('"density":', '"density": 0.5, "density":', 1))
    with pytest.raises(UserError, match=r"density.* twice"):
        read_statistics(path)


def test_what_rectified_attention_may_sum_to(tmp_path):
    """ReLA's weights have no upper limit; earlier versions wrote its α, 1, and not that."""
    report = statistics()
    path = tmp_path / "a.heads.json"

    def accepted() -> bool:
        path.write_text(json.dumps(report))
        try:
            return bool(read_statistics(path))
        except UserError:
            return False

    first(report, entropy=-130.0, punctuation=5.0)
    assert not accepted()
    first(report, alpha=1.0)
    assert not accepted(), "other heads of the type have another α, so it is not ReLA"
    for row in report["heads"]:
        row["alpha"] = 1.0 if row["attention"] == "encoder_self" else row["alpha"]
    report["layers"][0]["diversity"] = 18.5
    assert accepted()
    report["layers"][-1]["diversity"] = 18.5
    assert not accepted()
    report["layers"][-1]["diversity"] = 0.5
    for sums, fits in (("any", True), ("one", False), ("zero or one", False)):
        report["row_sums"] = {"encoder_self": sums}
        assert accepted() == fits
    first(report, punctuation=-5.0)
    report["row_sums"] = {"encoder_self": "any"}
    assert not accepted()


def test_every_statistic_has_a_limit_or_none():
    assert {*COLUMNS, *PART_COLUMNS} > MASSES
    others = {"density", "density_of_pairs", "density_std", "density_histogram", "output_norm", "entropy"}
    assert {"alpha", *others} <= {*COLUMNS} - MASSES
    AlphaConfig(fixed_alpha=MAX_ALPHA)
    with pytest.raises(ValueError, match="1000"):
        AlphaConfig(fixed_alpha=MAX_ALPHA + 1)


def test_files_next_to_the_statistics_are_read(tmp_path):
    path = write_statistics(tmp_path / "average.heads.json")
    assert read_model(str(path)).trajectories is read_model(path).importance is None
    write_alpha_log(tmp_path / "alpha.jsonl")
    (tmp_path / "average.importance.json").write_text(json.dumps(importance(name="average.heads")))
    found = read_model(path)
    assert found.trajectories.updates[-1] == 400 and found.importance["loss"] == 2.0

    packed = tmp_path / "packed" / "average.heads.json.bz2"
    for name in ("average.heads.json", "average.importance.json", "alpha.jsonl"):
        write_packed(packed.with_name(f"{name}.bz2"), (tmp_path / name).read_text())
    again = read_model(packed)
    assert (again.statistics, again.importance) == (found.statistics, found.importance)
    assert again.trajectories.updates == found.trajectories.updates

    for wrong in ("[]", "{", '{"loss": 1}'):
        (tmp_path / "average.importance.json").write_text(wrong)
        with pytest.raises(UserError, match=r"average.importance.json.*head_importance.py"):
            read_model(path)
    (tmp_path / "average.importance.json").unlink()
    write_alpha_log(tmp_path / "alpha.jsonl", layers=3)
    with pytest.raises(UserError, match="they are of another model"):
        read_model(path)


@pytest.mark.parametrize(
    "other, word",
    [
        ({"seed": 1}, "α"),
        ({"heads": 4}, "encoder_self 2×4"),
        ({"name": "runs/best.pt"}, "runs/best.pt"),
    ],
)
def test_importance_of_another_model_is_refused(tmp_path, other, word):
    path = tmp_path / "average.heads.json"
    path.write_text(json.dumps(statistics()))
    (tmp_path / "average.importance.json").write_text(json.dumps(importance(name="folder/model.pt")))
    read_model(path)
    (tmp_path / "average.importance.json").write_text(json.dumps(importance(**other)))
    with pytest.raises(UserError) as caught:
        read_model(path)
    assert word in str(caught.value)


def test_maps_of_other_alphas_are_refused(tmp_path):
    def with_alphas(change: float) -> Maps:
        alphas = {name: [[0.0] * 3, [0.0] * 3] for name in ATTENTION_TYPES}
        for row in statistics()["heads"]:
            alphas[row["attention"]][row["layer"]][row["head"]] = row["alpha"]
        alphas["decoder_self"][1][2] += change
        return maps(tmp_path / "a.npz", alphas=alphas)

    check_same_model(ModelAnalysis("a", statistics(), maps=with_alphas(1e-7)))
    with pytest.raises(UserError, match="decoder_self layer 1 head 2"):
        check_same_model(ModelAnalysis("a", statistics(), maps=with_alphas(0.01)))


def test_sentences_of_other_texts_are_not_shown_side_by_side(tmp_path):
    paths = [tmp_path / f"{name}.npz" for name in "abc"]
    for path, text in zip(paths, ("Ein Satz.", "Ein Wort.", None)):
        write_maps(path, [sentence(text="Der erste."), sentence(text=text)])
    maps = list(map(Maps, paths))
    check_same_sentences(maps, [0])
    check_same_sentences(maps[::2], [0, 1, 2])
    with pytest.raises(UserError, match=r"sentence 1 .*Ein Satz.*Ein Wort"):
        check_same_sentences(maps, [0, 1])


def swap(found: dict, order: str, **values) -> None:
    found["curves"][order].update(values)


IMPORTANCE_FAULTS = [
    (lambda found: found.pop("loss"), "loss"),
    (lambda found: found.update(loss=float("nan")), "nan"),
    (lambda found: found.update(loss=True), "True"),
    (lambda found: found.update(loss=-2.0), "-2.0"),
    (lambda found: found.update(loss=10**400), "loss"),
    (lambda found: found.update(loss=2.5), "2.5"),
    (lambda found: found.update(gain=2.5), "'gain'"),
    (lambda found: found["heads"].clear(), "heads"),
    (lambda found: found["heads"].pop(), "decoder_context"),
    (lambda found: found["heads"].append(found["heads"][0]), "encoder_self layer 0 head 0 occurs twice"),
    (lambda found: first(found, importance="x"), "'x'"),
    (lambda found: first(found, importance=9.0), "encoder_self layer 0 head 0"),
    (lambda found: first(found, density=1.5), "1.5"),
    (lambda found: first(found, alpha=0.5), "0.5"),
    (lambda found: first(found, bleu=101.0), "101.0"),
    (lambda found: first(found, head=1.0), "1.0"),
    (lambda found: found["curves"].clear(), "curves"),
    (lambda found: swap(found, "random", pruned=[], losses=[[]]), "curves.'random'"),
    (lambda found: swap(found, "random", pruned=[0, 0, 0]), "[0, 0, 0]"),
    (lambda found: swap(found, "random", pruned=[0], losses=[[2.0]]), "[0]"),
    (lambda found: swap(found, "random", pruned=[0, 18, 9]), "[0, 18, 9]"),
    (lambda found: swap(found, "random", pruned=[0, 9, 19]), "[0, 9, 19]"),
    (lambda found: swap(found, "random", pruned=[-1, 9, 18]), "-1"),
    (lambda found: swap(found, "random", pruned=[0, "x", 18]), "'x'"),
    (lambda found: swap(found, "random", losses=[]), "curves.'random'"),
    (lambda found: swap(found, "random", losses=[[2.0], [2.0]]), "curves.'random'"),
    (lambda found: swap(found, "random", losses=[[1.0, 3.0, 5.0]]), "1.0"),
    (lambda found: found["curves"]["random"]["losses"][0].append(2.0), "curves.'random'"),
    (lambda found: found["curves"]["random"]["losses"][0].__setitem__(1, 10**400), "losses[0][1]"),
    (lambda found: found["correlations"][0].update(spearman="x"), "'x'"),
    (lambda found: found["correlations"][0].update(spearman=1.5), "1.5"),
    (lambda found: found["correlations"][0].update(p_value=-0.5), "-0.5"),
    (lambda found: found["correlations"][0].update(p_value=None), "None"),
    (lambda found: found["correlations"][0].pop("p_value"), "p_value"),
    (lambda found: found["correlations"][0].update(measure=1), "measure is 1"),
    (lambda found: found["correlations"][0].update(attention="self"), "'self'"),
    (lambda found: found["correlations"].pop(), "decoder_context"),
    (lambda found: found["correlations"].append(found["correlations"][0]), "2 of density, all"),
]


@pytest.mark.parametrize("change, word", IMPORTANCE_FAULTS)
def test_errors_in_importance_are_named(tmp_path, change, word):
    path, found = tmp_path / "a.importance.json", importance()
    path.write_text(json.dumps(found))
    assert read_importance(path) == found
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=r"a\.importance\.json .*head_importance\.py") as caught:
        read_importance(path)
    assert word in str(caught.value) and len(str(caught.value)) < 500 + len(str(path))
