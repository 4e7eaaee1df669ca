"""scripts/experiment.py: killed, resumed, skipped, changed; and scripts/compare.py on its results."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
import sacrebleu
import torch
from commands import ROOT, checked, forks, refused, script

from user_dir.checkpoints import load_checkpoint
from user_dir.experiments import evaluating, training_stages
from user_dir.experiments.folders import open_job, state
from user_dir.experiments.plan import read_plan
from user_dir.experiments.running import run_all
from user_dir.io import read_text
from user_dir.packed_folders import archive_of, read_archive

pytestmark = pytest.mark.slow

UPDATES = 60  # in epochs of 20
SEARCH = {"beams": [1, 3], "min_words": 7, "most_expansions": 200}


@pytest.fixture(scope="module")
def experiment(small, tmp_path_factory):
    """An experiment with one run, as a file; its overrides as a list that tests can change."""
    folder = tmp_path_factory.mktemp("experiment")
    mine = shutil.copytree(small, folder / "data" / "mine")  # a test removes a file of it temporarily
    overrides = [f"task.data={mine / 'bin'}", f"optimization.max_update={UPDATES}", "common.log_interval=4"]
    overrides += [f"model.{side}_layers=1" for side in ("encoder", "decoder")]
    overrides += [f"model.{side}_embed_dim=16" for side in ("encoder", "decoder")]
    overrides += ["dataset.max_tokens=1000", "dataset.num_workers=0"]
    # One validation sentence is too long for training, but not for the model.
    longest = max(len(line.split()) for line in (mine / "text" / "spm" / "valid.de").open())
    overrides += [f"task.max_source_positions={longest}", "model.max_source_positions=64"]
    overrides += ["dataset.skip_invalid_size_inputs_valid_test=true"]
    return write(folder / "tiny.yaml", overrides), overrides


def write(path, overrides):
    run = {"name": "alpha", "config": "configs/toy/alpha_entmax.yaml", "overrides": overrides}
    path.write_text(json.dumps({"average": 2, "search": SEARCH, "runs": [run]}))  # JSON is YAML
    return path


def the_job(path):
    return open_job(read_plan(path, ROOT)[0], ROOT, path.parent / "runs", path.parent / "records")


@pytest.fixture
def children_are_forks(monkeypatch):
    """Of runs in this process; ``test_training_stages.py`` has how real ones end."""

    def run_child(name, command, log, descriptors=(), environment=None):
        with mock.patch.dict(os.environ, environment or {}):
            done = checked(forks().run(*command[command.index("-m") :]), True)
        with log.open("a") as file:
            file.write(done.stdout + done.stderr)

    for module in (training_stages, evaluating):
        monkeypatch.setattr(module, "run_child", run_child)


def test_a_killed_run_is_resumed_and_a_finished_run_is_unchanged(
    experiment, children_are_forks, monkeypatch, capsys
):
    path, overrides = experiment
    job = the_job(path)
    assert state(job) == "to do"
    program, places = forks(), ["--folder", path.parent / "runs", "--records", path.parent / "records"]
    program.start(ROOT / "scripts" / "experiment.py", path, *places)
    program.wait_until((job.folder / "checkpoint_last.pt").is_file)
    assert state(job) == "running"
    assert run_all([job], print) == ({}, ["alpha-seed1"]), "two processes at one run"
    assert program.kill(signal.SIGTERM).returncode == 143
    assert state(job) == "interrupted", "what it ran goes on"

    last = job.folder / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:5000])  # as if killed while copying it
    assert run_all([job], print) == ({}, [])
    assert state(job) == "done"
    result = json.loads(job.result.read_text())
    training = result["training"]
    assert training["updates"] == UPDATES and training["sessions"] == 2
    assert training["tokens_per_second"] > 0 and training["processor_seconds"] > 0
    assert training["tokens_per_processor_second"] is None, "its time holds what was trained twice"
    sessions = json.loads((job.folder / "training.json").read_text())["sessions"]
    assert sessions[0]["from"] == 0 and 0 < sessions[1]["from"] < UPDATES
    updates = [json.loads(line)["update"] for line in (job.folder / "alpha.jsonl").read_text().splitlines()]
    assert updates == [0, 25, 50]

    counted = f"num. shared model params: {result['parameters']:,} "
    assert counted in (job.folder / "training.log").read_text()
    assert result["config"] == "configs/toy/alpha_entmax.yaml"
    assert result["corpus"] == "mine" and result["direction"] == "de-en"
    assert result["validation"]["loss"] > result["validation"]["nll_loss"] * 0.5 > 0
    assert '"valid_bsz": "13"' in (job.folder / "validate.log").read_text(), "of all sentences"
    for split, sentences in (("valid", 13), ("exam", 11)):
        found = result["evaluation"][split]
        assert found["sentences"] == sentences and found["sentences_per_second"] > 0
        translated, references = (
            read_text(file, "the text").splitlines()
            for file in (
                job.record / "evaluation" / f"{split}.en",
                job.corpus.text(job.corpus.subsets[split], "en"),
            )
        )
        assert found["bleu"] == round(sacrebleu.corpus_bleu(translated, [references]).score, 2)
        assert "case:lc" in found["tokenized_bleu_lowercased_signature"]
    found = result["search"]["exam"]
    assert [each["beam"] for each in found["beams"]] == [1, 3]
    long = [line for line in job.corpus.text("test", "de").read_text().splitlines() if len(line.split()) > 6]
    assert found["sentences"] == found["exact"]["sentences"] == len(long) < 11
    assert "modes" not in found["exact"] and 0 <= found["exact"]["completed"] <= 1
    last_alphas = json.loads((job.folder / "alpha.jsonl").read_text().splitlines()[-1])
    heads = result["heads"]["encoder_self"]
    assert heads["alpha"][0] == pytest.approx(last_alphas["encoder_self"][0], abs=0.02)
    assert heads["alpha_min"] <= heads["alpha_mean"] <= heads["alpha_max"] and 0 < heads["density_mean"] <= 1
    assert [file.name for file in job.folder.glob("*.pt")] == ["average.pt"]

    # The record is complete and contains no paths of this machine.
    kept = read_archive(archive_of(job.record.parent))
    scored = [f"evaluation/{split}.{end}" for split in ("valid", "exam") for end in ("en", "json")]
    heads = ["average.heads.json", "average.importance.json", "alpha.jsonl"]
    names = ["settings.json", "result.json", "search/exam.json", *heads, *scored]
    assert set(kept) == {f"{job.record.name}/{name}" for name in names} and not job.record.exists()
    assert read_text(job.record / "result.json", "the record") == job.result.read_text()
    for file in (job.record / name for name in ("average.heads.json", "evaluation/exam.json")):
        assert str(job.folder) not in read_text(file, "the record")

    # A finished run is not repeated; with different settings it is refused and unchanged.
    before = {file: file.stat().st_mtime_ns for file in path.parent.rglob("*") if file != path}
    assert run_all([job], print) == ({}, [])
    other = the_job(write(path, [*overrides, "model.dropout=0.2"]))
    assert state(other) == "changed: config.model.dropout was 0.1 and is 0.2"
    failed, _ = run_all([other, job], print)
    assert list(failed) == ["alpha-seed1"] and "dropout was 0.1 and is 0.2" in failed["alpha-seed1"]
    write(path, overrides)
    assert {file: file.stat().st_mtime_ns for file in path.parent.rglob("*") if file != path} == before
    check_what_is_kept_is_enough(job)
    check_the_command_line_lists_tabulates_and_fails(experiment, monkeypatch, capsys)


def processes_of(folder):
    """Those whose command names a folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found += [file.parent.name] if str(folder).encode() in file.read_bytes() else []
    return found


@pytest.mark.nightly
def test_two_workers_make_the_same_run(experiment, tmp_path):
    """Killed in between, without dropout, whose random numbers each worker draws for itself."""
    _, overrides = experiment
    settings = [*overrides, "optimization.update_freq=[2]", "model.dropout=0"]
    plans = {workers: tmp_path / f"plan{workers}.yaml" for workers in (1, 2)}
    jobs = {workers: the_job(write(path, settings)) for workers, path in plans.items()}
    assert run_all([jobs[1]], print) == ({}, [])

    program, places = forks(), ["--folder", tmp_path / "runs", "--records", tmp_path / "records"]
    program.start(ROOT / "scripts" / "experiment.py", plans[2], "--workers", "2", *places)
    program.wait_until((jobs[2].folder / "checkpoint_last.pt").is_file)
    assert program.kill(signal.SIGTERM).returncode == 143
    assert not processes_of(jobs[2].folder), "a worker is left"
    assert run_all([jobs[2]], print, workers=2) == ({}, [])

    figures = {workers: json.loads(job.result.read_text())["training"] for workers, job in jobs.items()}
    assert [figures[workers]["workers"] for workers in jobs] == [[1], [2]]
    assert figures[1]["updates"] == figures[2]["updates"] and figures[1]["tokens"] == figures[2]["tokens"]
    one, two = (load_checkpoint(jobs[workers].average)["model"] for workers in jobs)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-5)


def check_what_is_kept_is_enough(job):
    """For a finished run without its folder, as on another machine, and for one that lacks a stage."""
    away = job.folder.rename(job.folder.with_name("away"))
    assert state(job) == "done"
    assert run_all([job], print) == ({}, [])
    assert not job.folder.exists()
    away.rename(job.folder)

    # Only the missing stage runs.
    before = {file: file.stat().st_mtime_ns for file in job.folder.rglob("*") if file.is_file()}
    heads = job.folder / "average.heads.json"
    for file in (heads, job.result, archive_of(job.record.parent)):
        file.unlink()
    assert run_all([job], print) == ({}, [])
    made = {file for file, time in before.items() if file.stat().st_mtime_ns != time}
    assert made == {heads, heads.with_suffix(".csv"), job.result}


def check_the_command_line_lists_tabulates_and_fails(experiment, monkeypatch, capsys):
    """With a finished run and one that cannot succeed."""
    path, overrides = experiment
    runs = path.parent / "runs"
    (runs / "tiny" / "foreign-seed1").mkdir(parents=True)
    (runs / "tiny" / "foreign-seed1" / "checkpoint_last.pt").write_bytes(b"not ours")
    run = {"config": "configs/toy/alpha_entmax.yaml", "overrides": overrides}
    plan = {"average": 2, "runs": [{"name": "foreign", **run}, {"name": "alpha", **run}]}
    path.write_text(json.dumps(plan))
    table = path.parent / "table.md"
    places = ["--folder", str(runs), "--records", str(path.parent / "records")]
    done = script("experiment", path, *places, "--output", table, check=False)
    refused(done, "foreign-seed1", "no settings.json")
    assert "| alpha | 1 " in " ".join(done.stdout.split()), "what is done is in the table none the less"
    assert table.read_text().strip() in done.stdout
    figures = json.loads(table.with_suffix(".json").read_text())
    assert figures["missing"] == ["foreign-seed1"] and figures["runs"][0]["run"] == "alpha"
    assert f"{figures['runs'][0]['validation']['loss']:.3f}" in table.read_text()

    monkeypatch.setattr("signal.signal", lambda *_: None)
    main = importlib.import_module("user_dir.commands.experiment").main
    capsys.readouterr()
    main([str(path), *places, "--list", "--only", "alpha-*"])
    listed = capsys.readouterr().out
    assert "alpha-seed1 done" in " ".join(listed.split()) and "foreign" not in listed

    stamp = the_job(path).corpus.bin / "stamp.json"  # a record is read even without data
    away = stamp.rename(stamp.with_name("away"))
    main([str(path), *places, "--list"])
    away.rename(stamp)
    listed = " ".join(capsys.readouterr().out.split())
    assert (
        "foreign-seed1 cannot be made: " in listed
        and "alpha-seed1 done" in listed
        and "| alpha | 1 " in listed
    )

    exam = path.parent / "records" / "tiny" / "alpha-seed1" / "evaluation" / "exam.json"
    main = importlib.import_module("user_dir.commands.compare").main
    main(["--system", "a", str(exam), "--system", "b", str(exam), "--output", str(table)])
    compared = capsys.readouterr().out
    assert "| b | " in " ".join(compared.split()) and "1.000" in compared
    values = json.loads(table.with_suffix(".json").read_text())["systems"][1]["BLEU"]
    assert round(values["mean"], 2) == json.loads(read_text(exam, "the record"))["bleu"] and values["p"] == 1
