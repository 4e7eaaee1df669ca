"""Experiments as YAML files: those of the repository, and possible errors."""

import importlib
import json
from pathlib import Path

import pytest

from user_dir.config import check_settings, hydra_override
from user_dir.errors import UserError
from user_dir.experiments.plan import Search, read_plan, select

ROOT = Path(__file__).resolve().parents[2]


def plan(tmp_path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


RUN = "runs:\n  - {name: a, config: c.yaml}\n"


def test_runs_are_in_order_with_seeds_and_experiment(tmp_path):
    text = """
average: 2
search: {min_words: 13}
overrides: [common.log_interval=7]
runs:
  - &a {name: a, config: c.yaml, overrides: [model.dropout=0.2], seeds: [3]}
  - {name: b, config: d.yaml, of: other}
  - {<<: *a, seeds: [1, 2]}
"""
    runs = read_plan(plan(tmp_path, text), Path("/root"))
    assert [run.label for run in runs] == ["a-seed3", "b-seed1", "a-seed1", "a-seed2"]
    assert [run.experiment for run in runs] == ["mine", "other", "mine", "mine"]
    assert runs[3].overrides == ("common.log_interval=7", "model.dropout=0.2") and runs[3].average == 2
    assert runs[1].config == Path("/root/d.yaml")
    assert runs[0].search == Search(min_words=13)
    assert runs[1].search is None, "its record is that of the other experiment"
    (tmp_path / "other.yaml").write_text("search: {beams: [3]}\n" + RUN, encoding="utf-8")
    assert read_plan(tmp_path / "mine.yaml", ROOT)[1].search == Search(beams=(3,))
    (tmp_path / "other.yaml").write_text("search: 3\n" + RUN, encoding="utf-8")
    with pytest.raises(UserError, match=r"other\.yaml, line 1: search is 3, but must be a mapping"):
        read_plan(tmp_path / "mine.yaml", ROOT)
    penalised = read_plan(plan(tmp_path, "new_piece_penalty: valid\n" + RUN), ROOT)
    assert penalised[0].new_piece_penalty == "valid" and runs[0].new_piece_penalty is None
    assert [run.label for run in select(runs, ["a-*1", "b*"])] == ["b-seed1", "a-seed1"]
    with pytest.raises(UserError, match=r"--only x\* matches none of the runs: a-seed3, b-seed1"):
        select(runs, ["a*", "x*"])


def test_without_early_stopping_validation_decides_nothing(tmp_path):
    """It only precedes the overrides of the file and the run, which can take it back."""
    text = """
overrides: [model.dropout=0]
runs:
  - {name: a, config: configs/multi30k-de-en/softmax.yaml}
  - {name: b, config: configs/multi30k-de-en/softmax.yaml, overrides: [checkpoint.patience=7]}
"""
    early, _, late, patient = (
        check_settings(run.config, list(map(hydra_override, run.overrides)))
        for head in ("", "stop_early: false")
        for run in read_plan(plan(tmp_path, head + text), ROOT)
    )
    assert early["task"]["eval_bleu"] and early["checkpoint"]["best_checkpoint_metric"] == "bleu"
    for settings in (late, patient):
        assert not settings["task"]["eval_bleu"] and settings["model"]["dropout"] == 0
        assert settings["checkpoint"]["best_checkpoint_metric"] == "loss"
        assert not settings["checkpoint"]["maximize_best_checkpoint_metric"]
    assert [settings["checkpoint"]["patience"] for settings in (early, late, patient)] == [5, -1, 7]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", r"it is \['a'\], but must be a mapping"),
        ("runs: [", "is not valid YAML"),
        ("average: 5", "the key runs is missing"),
        ("runs: []", "line 1: runs is .*, but must be a list that is not empty"),
        ("runs: 3", "line 1: runs is 3, but must be a list"),
        ("runs: {a: 1}", "runs is {'a': 1}, but must be a list"),
        (RUN + RUN, "line 3: 'runs' is a duplicate of line 1"),
        (
            "title: x\n" + RUN,
            "line 1: unknown key 'title'; choose from runs, average, beam, importance, stop_ea",
        ),
        ("average: 0\n" + RUN, "average is 0, but must be a whole number from 1 .*or ema"),
        ("average: sma\n" + RUN, "average is 'sma', but must be a whole number"),
        ("beam: 0\n" + RUN, "beam is 0"),
        ("new_piece_penalty: test\n" + RUN, "new_piece_penalty is 'test'"),
        ("importance: 1\n" + RUN, "importance is 1, but must be true or false"),
        ("stop_early: never\n" + RUN, "stop_early is 'never', but must be true or false"),
        ("search: [5]\n" + RUN, r"search is \[5\], but must be a mapping"),
        (
            "search: {beam: 5}\n" + RUN,
            "unknown key 'beam' in search; choose from beams, min_words, sentences,",
        ),
        ("search: {beams: [5, 0]}\n" + RUN, r"search.beams\[1\] is 0, but must be a whole number from 1"),
        ("search: {beams: []}\n" + RUN, r"search.beams is \[\], but must be a list that is not empty"),
        ("search: {min_words: 0}\n" + RUN, "search.min_words is 0, but must be a whole number from 1"),
        ("search: {sentences: 0}\n" + RUN, "search.sentences is 0, but must be a whole number from 1"),
        ("search: {exact: 1}\n" + RUN, "search.exact is 1, but must be true or false"),
        (
            "overrides: [dropout]\n" + RUN,
            r"overrides\[0\] is 'dropout', but must be of the form section.key=",
        ),
        ("overrides: x=1\n" + RUN, "overrides is 'x=1', but must be a list"),
        ("overrides: [common.seed=2]\n" + RUN, "line 1: common.seed=2 cannot be an override; use seeds"),
        ("overrides: [hydra.run.dir=x]\n" + RUN, "cannot be an override; it configures hydra"),
        (RUN + "  - softmax", r"line 3: runs\[1\] is 'softmax', but must be a mapping"),
        (RUN + "  - {name: b}", r"line 3: the key runs\[1\].config is missing"),
        (RUN + "  - {name: b, config: c.yaml, seed: 1}", "line 3: unknown key 'seed'"),
        (RUN + "  - {name: a/b, config: c.yaml}", "line 3: .*name is 'a/b', but must be a name of at most"),
        (RUN + "  - {name: ..a, config: c.yaml}", "line 3: .*name is '..a', but"),
        (RUN + f"  - {{name: {'a' * 101}, config: c.yaml}}", "line 3: .*name is 'aaa"),
        (RUN + "  - {name: b, config: c.yaml, of: ..}", r"line 3: runs\[1\].of is '..'"),
        (RUN + "  - {name: b, config: c.yaml, seeds: [one]}", r"line 3: runs\[1\].seeds\[0\] is 'one'"),
        (RUN + "  - {name: b, config: c.yaml, seeds: []}", r"line 3: runs\[1\].seeds is \[\]"),
        (
            RUN + "  - {name: b, config: c.yaml, overrides: [dropout]}",
            r"line 3: .*overrides\[0\] is 'dropout'",
        ),
        (RUN + "  - {name: b, config: c.yaml, overrides: [1]}", r"line 3: .*overrides\[0\] is 1, but"),
        (
            RUN + "  - {name: b, config: c.yaml, overrides: [++common.seed=3]}",
            "line 3: .*=3 cannot be an override",
        ),
        (
            RUN + '  - {name: b, config: "c\\0.yaml"}',
            r"line 3: .*config is 'c\\x00.yaml', but must be the path",
        ),
        (RUN + '  - {name: b, config: "c\\ud800.yaml"}', r"line 3: .*config is 'c\\ud800.yaml', but must be"),
        (
            RUN + '  - {name: b, config: c.yaml, overrides: ["task.data=\\0"]}',
            r"line 3: .* is 'task.data=\\x00', but",
        ),
        (RUN + "  - {name: a, config: c.yaml}", "line 3: a-seed1 occurs twice"),
        (RUN + "  - {name: a, config: d.yaml, seeds: [2]}", "line 3: a occurs twice with different"),
        (
            RUN + "  - {name: a, config: d.yaml, seeds: [2], of: other}",
            "line 3: a occurs twice with different",
        ),
        ("before: 3\n" + RUN, "line 1: before is 3, but must be a list"),
        (
            "before: [{run: x}]\n" + RUN,
            r"line 1: unknown key 'run' in before\[0\]; choose from prepare, train,",
        ),
        (
            "before: [{raw: x}]\n" + RUN,
            r"before\[0\]: a step must have one of the keys prepare, train, triplets",
        ),
        ("before: [{prepare: a}, train]\n" + RUN, r"before\[1\] is 'train', but must be a mapping"),
        ("before: [{train: a, raw: b}]\n" + RUN, "train takes nothing else"),
        ("before: [{triplets: a, corpus: b}]\n" + RUN, "triplets takes corpus and output"),
        ("before: [{prepare: ../a}]\n" + RUN, r"before\[0\]: prepare is '../a', which has a part '..'"),
        (
            "before: [{prepare: a, raw: /tmp}]\n" + RUN,
            r"line 1: before\[0\]: raw is '/tmp', which is an absolute",
        ),
    ],
)
def test_errors_are_reported_with_their_line(tmp_path, text, words):
    with pytest.raises(UserError, match=r"mine\.yaml.*" + words):
        read_plan(plan(tmp_path, text), ROOT)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_our_experiments_ask_for_nothing_twice(path):
    """That their settings are valid is tested in test_settings.py."""
    runs = read_plan(path, ROOT)
    assert len({(run.config, run.overrides, run.seed) for run in runs}) == len(runs)


def test_a_run_of_another_experiment_is_the_same_there():
    """Otherwise the second experiment would find the run trained with different settings."""
    plans = {path.stem: read_plan(path, ROOT) for path in (ROOT / "experiments").glob("*.yaml")}
    borrowed = [(name, run) for name, runs in plans.items() for run in runs if run.experiment != name]
    assert borrowed
    for _, run in borrowed:
        assert run in plans[run.experiment]


def test_workers_that_cannot_share_batches_are_refused_before_anything_is_made(tmp_path, monkeypatch):
    from user_dir.experiments import steps

    def made(*_):
        raise AssertionError("it begins")

    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(steps, "make_steps", made)
    main = importlib.import_module("user_dir.commands.experiment").main
    config = "configs/toy/alpha_entmax.yaml"
    text = f"""
before: [{{prepare: toy}}]
runs:
  - {{name: a, config: {config}, overrides: ["optimization.update_freq=[2]"]}}
  - {{name: b, config: {config}, overrides: ["optimization.update_freq=[4]"]}}
"""
    places = ["--folder", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
    words = [str(plan(tmp_path, text)), *places, "--workers"]
    with pytest.raises(UserError, match=r"^a-seed1: 4 workers cannot share .*update_freq is \[2\]; choose"):
        main([*words, "4"])
    with pytest.raises(AssertionError, match="it begins"):
        main([*words, "2"])
    trained = tmp_path / "runs" / "mine" / "a-seed1" / "training.json"
    trained.parent.mkdir(parents=True)
    trained.write_text(json.dumps({"done": True, "sessions": []}))
    with pytest.raises(AssertionError, match="it begins"):
        main([*words, "4"])
