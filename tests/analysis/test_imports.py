"""Commands that only read results import neither fairseq nor torch, and matplotlib only for figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from examples import write_alpha_log, write_statistics

from user_dir.commands.experiment import main

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
RUN = """
import json, runpy, sys, time
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
begin = time.process_time()
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print(time.process_time() - begin, file=sys.stderr)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize("script", ["compare", "compare_heads", "dump_alphas", "plot_heads", "report"])
def test_reading_files_imports_no_model(script, tmp_path):
    heads = write_statistics(tmp_path / "average.heads.json")
    log = write_alpha_log(tmp_path / "alpha.jsonl")
    for name in ("a.en", "b.en", "ref.en"):
        (tmp_path / name).write_text("a man sees a car .\ntwo girls paint a wall .\n")
    arguments = {
        "compare": "--samples 10 --system a a.en --system b b.en --ref ref.en",
        "compare_heads": f"--system a {heads}",
        "dump_alphas": f"--path {log}",
        "plot_heads": f"{heads} --alpha-log {log}",
        "report": f"--statistics {heads}",
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(SCRIPTS / f"{script}.py"), *arguments[script].split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    assert "user_dir" in imported
    assert not imported & {"fairseq", "hydra", "omegaconf", "torch"}
    if script in ("compare", "compare_heads", "report"):
        assert "matplotlib" not in imported
    print(f"{script}: {float(done.stderr.splitlines()[-1]):.2f} s of one core")  # `pytest -s` shows it


@pytest.mark.parametrize("experiment", ["ablations", "comparison"])
def test_listing_finished_runs_imports_no_model(experiment, tmp_path):
    plan = SCRIPTS.parent / "experiments" / f"{experiment}.yaml"
    words = [str(SCRIPTS / "experiment.py"), str(plan), "--list", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    *shown, imported = done.stdout.splitlines()
    states = [line.split()[1] for line in shown if "-seed" in line]
    assert states and set(states) == {"done"}
    assert not set(json.loads(imported)) & {"fairseq", "torch"}
    print(f"experiment --list: {float(done.stderr.splitlines()[-1]):.2f} s of one core")


def test_a_run_with_other_settings_than_its_record_is_listed_as_changed(tmp_path, monkeypatch, capsys):
    """Then fairseq says whether settings mean the same."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    plan = tmp_path / "comparison.yaml"
    text = (SCRIPTS.parent / "experiments" / "comparison.yaml").read_text()
    plan.write_text(text.replace("overrides: [dataset", "overrides: [checkpoint.patience=3, dataset", 1))
    assert plan.read_text() != text
    main([str(plan), "--list", "--only", "de-en-softmax-seed1"])
    assert "checkpoint.patience was None and is 3" in capsys.readouterr().out
