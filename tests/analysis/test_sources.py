"""Statistics, α log and attention maps must be complete and of the same model."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from examples import IMPORTANCE, sentence, statistics, write_alpha_log, write_statistics

from user_dir.analysis.maps import Maps, maps_writer
from user_dir.analysis.sources import (
    ModelAnalysis,
    check_same_model,
    check_same_split,
    check_same_split_of_maps,
    read_importance,
    read_model,
    read_statistics,
    result_file,
)
from user_dir.analysis.trajectories import Trajectories
from user_dir.attention_types import ATTENTION_TYPES
from user_dir.errors import UserError
from user_dir.io import write_packed


def log(layers: int = 2, heads: int = 3) -> Trajectories:
    return Trajectories([0, 10], {name: np.full((2, layers, heads), 1.5) for name in ATTENTION_TYPES})


def maps(path, layers: int = 2) -> Maps:
    with maps_writer(path) as writer:
        writer.write(sentence(layers=layers))
    return Maps(path)


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


def maps_of(path, subset: str) -> Maps:
    with maps_writer(path, corpus="multi30k", subset=subset) as writer:
        writer.write(sentence())
    return Maps(path)


def test_files_of_different_splits_are_not_combined(tmp_path):
    valid, test = maps_of(tmp_path / "valid.npz", "valid"), maps_of(tmp_path / "test.npz", "test")
    old = maps(tmp_path / "old.npz")
    ours = ModelAnalysis("ours", statistics(), maps=valid)
    check_same_split([ours, ModelAnalysis("theirs", statistics(), maps=old)])
    check_same_split_of_maps([valid, old, valid])
    splits = r"different splits cannot be combined: .*\(multi30k, valid\) and .*\({}\); write them"
    with pytest.raises(UserError, match=splits.format("multi30k, test")):
        check_same_split([ModelAnalysis("ours", statistics(), maps=test)])
    for other in ({"subset": "test"}, {"corpus": "tanaka"}):
        found = {**statistics(), **other}
        named = splits.format(f"{found['corpus']}, {found['subset']}")
        with pytest.raises(UserError, match=named):
            check_same_split([ours, ModelAnalysis("theirs", found)])
    with pytest.raises(UserError, match=splits.format("multi30k, test")):
        importance = {"corpus": "multi30k", "subset": "test"}
        check_same_split([ModelAnalysis("ours", statistics(), importance=importance)])
    with pytest.raises(UserError, match=splits.format("multi30k, test")):
        check_same_split_of_maps([old, valid, test])


def test_results_of_different_splits_never_share_a_file(tmp_path):
    checkpoint = tmp_path / "checkpoint.best_bleu_36.2.pt"
    named = result_file(checkpoint, "valid", "heads.json")
    assert named == tmp_path / "checkpoint.best_bleu_36.2.valid.heads.json"
    assert named != result_file(checkpoint, "test_2016_flickr", "heads.json")


def changed(change) -> dict:
    report = copy.deepcopy(statistics())
    change(report)
    return report


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda report: report.pop("layers"), "no layers"),
        (lambda report: report["heads"].clear(), "no heads"),
        (lambda report: report["heads"][0].pop("density"), "no density"),
        (lambda report: report["heads"][0].update(density="x"), "density 'x'"),
        (lambda report: report["heads"][0].update(eos="much"), "eos 'much'"),
        (lambda report: report["heads"][0].update(eos=float("nan")), "a measure nan"),
        (lambda report: report["heads"][0].update(alpha=0.5), "an alpha below 1"),
        (lambda report: report["heads"][0].update(layer=-1), "layer -1"),
        (lambda report: report["heads"][0].update(layer=True), "layer True"),
        (lambda report: report["heads"][0].update(attention="self"), "no attention type 'self'"),
        (lambda report: report["heads"].append(report["heads"][0]), "a head occurs twice"),
        (lambda report: report["heads"].pop(1), "encoder_self lacks some of the heads of 2 layers of 3"),
        (lambda report: report["heads"][0]["density_histogram"].append(1), "unequal lengths"),
        (lambda report: report["layers"][0].update(union_density=None), "union_density None"),
        (lambda report: report["layers"].pop(), "layers other than those of its heads"),
        (lambda report: report["layers"][1].update(layer=0), "layers other than those of its heads"),
        (lambda report: report.update(roles=[]), "list"),
    ],
)
def test_errors_in_statistics_are_named(tmp_path, change, word):
    path = tmp_path / "a.heads.json"
    path.write_text(json.dumps(statistics()))
    assert read_statistics(path) == json.loads(path.read_text())
    path.write_text(json.dumps(changed(change)))
    with pytest.raises(UserError, match=r"a\.heads\.json is not a file of head statistics \(") as caught:
        read_statistics(path)
    assert word in str(caught.value)


def test_files_next_to_the_statistics_are_read(tmp_path):
    path = write_statistics(tmp_path / "average.heads.json")
    assert read_model(path).trajectories is read_model(path).importance is None
    write_alpha_log(tmp_path / "alpha.jsonl")
    (tmp_path / "average.importance.json").write_text(json.dumps(IMPORTANCE))
    found = read_model(path)
    assert found.trajectories.updates[-1] == 400 and found.importance["loss"] == 2.0

    packed = tmp_path / "packed" / "average.heads.json.bz2"
    for name in ("average.heads.json", "average.importance.json", "alpha.jsonl"):
        write_packed(packed.with_name(f"{name}.bz2"), (tmp_path / name).read_text())
    again = read_model(packed)
    assert (again.statistics, again.importance) == (found.statistics, found.importance)
    assert again.trajectories.updates == found.trajectories.updates

    for wrong in ("[]", "{", '{"loss": 1}', json.dumps({**IMPORTANCE, "curves": {"a": {"pruned": [1]}}})):
        (tmp_path / "average.importance.json").write_text(wrong)
        with pytest.raises(UserError, match=r"average.importance.json is not written by head_importance.py"):
            read_model(path)
    (tmp_path / "average.importance.json").unlink()
    write_alpha_log(tmp_path / "alpha.jsonl", layers=3)
    with pytest.raises(UserError, match="they are of another model"):
        read_model(path)


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda found: found.pop("loss"), "no loss"),
        (lambda found: found.update(loss=float("nan")), "loss nan"),
        (lambda found: found.update(loss=True), "loss True"),
        (lambda found: found.update(loss=10**400), "(loss "),
        (lambda found: found["heads"].clear(), "no heads"),
        (lambda found: found["heads"][0].update(importance="x"), "importance 'x'"),
        (lambda found: found["curves"].clear(), "no curves"),
        (lambda found: found["curves"]["random"].update(pruned=[], losses=[[]]), "pruned []"),
        (lambda found: found["curves"]["random"].update(pruned=[0, 0, 0]), "pruned [0, 0, 0]"),
        (lambda found: found["curves"]["random"].update(pruned=[0], losses=[[2.0]]), "pruned [0]"),
        (lambda found: found["curves"]["random"].update(pruned=[0, 8, 4]), "pruned [0, 8, 4]"),
        (lambda found: found["curves"]["random"].update(pruned=[-1, 4, 8]), "pruned [-1, 4, 8]"),
        (lambda found: found["curves"]["random"].update(pruned=[0, "x", 8]), "pruned 'x'"),
        (lambda found: found["curves"]["random"].update(losses=[]), "a curve without losses"),
        (lambda found: found["curves"]["random"].update(losses=[[2.0], [3.0]]), "unequal lengths"),
        (lambda found: found["curves"]["random"]["losses"][0].append(2.0), "unequal lengths"),
        (lambda found: found["curves"]["random"]["losses"][0].__setitem__(0, 10**400), "(a loss "),
        (lambda found: found["correlations"][0].update(spearman="x"), "spearman 'x'"),
        (lambda found: found["correlations"][0].update(p_value="x"), "p_value 'x'"),
        (lambda found: found["correlations"][0].update(p_value=None), "p_value None"),
        (lambda found: found["correlations"][0].pop("p_value"), "no p_value"),
        (lambda found: found["correlations"][0].update(measure=1), "int"),
    ],
)
def test_errors_in_importance_are_named(tmp_path, change, word):
    path, found = tmp_path / "a.importance.json", copy.deepcopy(IMPORTANCE)
    path.write_text(json.dumps(found))
    assert read_importance(path) == IMPORTANCE
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=r"a\.importance\.json is not written by head_importance") as caught:
        read_importance(path)
    assert word in str(caught.value) and len(str(caught.value)) < 300 + len(str(path))
