"""Tables of experiments: those of the pages come from the records; parts of a page are replaced."""

import json
import shlex
from pathlib import Path

import pytest

from experiments import run, tables
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
END = "<!-- end -->"


@pytest.mark.parametrize("name", ["comparison", "regularisation", "sparse_outputs"])
def test_the_first_tables_of_a_page_come_from_the_records(name, tmp_path):
    page = (ROOT / "experiments" / f"{name}.md").read_text(encoding="utf-8").partition(END)[0] + END

    def printed(command: str) -> str:
        _, script, plan, *words = shlex.split(command.replace("\\\n", " "))
        assert script == "experiments/tables.py"
        return tables.of_plan(ROOT / plan, words[1::2], tmp_path)

    assert "| run | seeds |" in page and tables.updated(page, printed) == page
    without = page.replace("| --- |", "")
    assert tables.updated(without, printed) == page


def result(corpus: str = "mine", **changes) -> dict:
    scores = {"beam": 5, "bleu": 30.0, "chrf": 50.0, "ter": 60.0, "sentences_per_second": 10.0}
    scores |= {f"{name}_signature": f"signature of {name}" for name in ("bleu", "chrf", "ter")}
    return {
        "run": "x",
        "corpus": corpus,
        "direction": "de-en",
        "averaged_epochs": 5,
        "parameters": 1000,
        "training": {
            "processor_seconds": 60.0,
            "tokens_per_second": 10.0,
            "tokens_per_processor_second": None,
        },
        "validation": {"loss": 4.0, "ppl": 7.0},
        "evaluation": {"valid": scores, "test": {**scores, "bleu": 20.0}},
        "heads": {"encoder_self": {"alpha_mean": 1.5, "density_mean": 0.5}},
        **changes,
    }


def test_seeds_are_averaged_and_systems_compared_in_order():
    first = result()
    second = json.loads(json.dumps(first))
    second["evaluation"]["test"]["bleu"] = 22.0
    printed = tables.experiment_tables([first, second, result(run="y", averaged_epochs="ema")])
    rows = [line for line in printed.split("\n") if line.startswith(("| x", "| y"))]
    assert "21.00 ± 1.41" in rows[0] and rows[0].split("|")[2].strip() == "2" and rows[1].startswith("| y")
    assert "| 1.500" in rows[2]


def test_keys_per_query_of_recorded_heads_stand_beside_the_loss(tmp_path):
    path, folder = tmp_path / "mine.yaml", tmp_path / "mine" / "x-seed1"
    path.write_text(json.dumps({"runs": [{"name": "x", "config": "c.yaml"}]}))
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result()))
    assert "keys per query" not in tables.of_plan(path, [], tmp_path, tmp_path)
    heads = [{"keys_per_query": keys} for keys in (2.0, 5.0)]
    (folder / "average.heads.json").write_text(json.dumps({"heads": heads}))
    header, _, row = tables.of_plan(path, [], tmp_path, tmp_path).split("\n")[2:5]
    cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (header, row))))
    assert cells["keys per query"] == "3.50"


def test_plans_are_read_in_order_with_overrides_of_all_runs(tmp_path):
    path = tmp_path / "mine.yaml"
    entry = {"name": "a", "config": "c.yaml", "overrides": ["x.y=1"], "seeds": [2, 1]}
    other = {"name": "b", "config": "c.yaml", "of": "other"}
    path.write_text(json.dumps({"stop_early": False, "overrides": ["x.z=2"], "runs": [entry, other]}))
    _, runs = run.read_plan(path, tmp_path)
    assert [job.label for job in runs] == ["a-seed2", "a-seed1", "b-seed1"]
    assert runs[0].overrides == [*run.NEVER_EARLY.split(), "x.z=2", "x.y=1"]
    assert runs[2].folder == tmp_path / "other" / "b-seed1"
    assert [job.label for job in run.read_plan(path, tmp_path, ["*-seed1"])[1]] == ["a-seed1", "b-seed1"]
    with pytest.raises(UserError, match="matches --only c-"):
        tables.of_plan(path, ["c-*"], tmp_path, tmp_path)
    path.write_text(json.dumps({"averages": 3, "runs": []}))
    with pytest.raises(UserError, match=r"mine\.yaml is not an experiment: .*'averages'"):
        run.read_plan(path, tmp_path)


def test_shell_commands_that_fail_end_in_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({"before": ["exit 3"], "runs": [{"name": "a", "config": "c.yaml"}]}))
    folders = ["--folder", tmp_path, "--records", tmp_path]
    monkeypatch.setattr("sys.argv", list(map(str, ["run.py", path, *folders])))
    with pytest.raises(UserError, match="exit 3"):
        run.main()
    with pytest.raises(UserError, match="exit 3"):
        tables.run_in_shell("exit 3")


def test_every_experiment_of_the_project_is_read():
    for path in (ROOT / "experiments").glob("*.yaml"):
        plan, runs = run.read_plan(path)
        assert runs and all((ROOT / job.config).is_file() for job in runs)
        assert len({(job.experiment, job.label) for job in runs}) == len(runs)
        assert all(command.split()[0] in ("python", "cd") for command in plan.before)
