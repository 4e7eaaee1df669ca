"""The script for GPUs, rehearsed without one."""

import json
import shutil
import sys

import pytest
import torch
from commands import forks, refused, script
from helpers import script_module

from user_dir.benchmarks.gpu_sections import NAMED, SECTIONS
from user_dir.errors import UserError
from user_dir.io import read_text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported(tmp_path):
    refused(script("gpu", "--output", tmp_path / "gpu", check=False), "GPU", "--rehearse")
    assert not list(tmp_path.iterdir())


def test_its_sections_end_within_nine_minutes():
    assert (tuple(SECTIONS), tuple(NAMED)) == (script_module("gpu").NAMES, script_module("gpu").NAMED)
    assert sum(limit for _, limit in SECTIONS.values()) <= 540
    assert all(limit < 600 for _, limit in NAMED.values())


@pytest.mark.parametrize(
    "ending, limit, how",
    [("", 60, "done"), ("exit(3)", 60, "3"), ("import time; time.sleep(99)", 1, "stopped")],
)
def test_how_a_section_ends(tmp_path, capsys, ending, limit, how):
    log = tmp_path / "gpu.log"
    log.write_text("before\n")
    command = [sys.executable, "-c", f"print('here', flush=True); {ending}"]
    assert how in script_module("gpu").in_time(command, limit, log)
    assert capsys.readouterr().out.startswith("here") and log.read_text().startswith("before\nhere")


def test_sections_find_the_places_that_were_named(tmp_path, monkeypatch):
    program, given = script_module("gpu"), []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "in_time", lambda command, limit, log: given.append(command) or "done")
    for data in ([], ["--data", "mine"]):
        program.main(["--rehearse", "--section", "attention", "--output", "new", *data])
    found = [program.parse_args([str(word) for word in command[2:]]) for command in given]
    assert [args.data for args in found] == [None, tmp_path / "mine"]
    assert {args.output for args in found} == {tmp_path / "new"}


@pytest.mark.slow
def test_a_section_that_fails_leaves_what_the_others_measure(tmp_path, monkeypatch, capsys):
    """Sections are forks here; those of ``test_rehearsal`` are processes."""
    program = script_module("gpu")

    def in_time(command, limit, log):
        done = forks().run(*command[1:])
        log.write_text(log.read_text(encoding="utf-8") + done.stdout + done.stderr, encoding="utf-8")
        return f"ended with status {done.returncode}" if done.returncode else "done"

    monkeypatch.setattr(program, "in_time", in_time)
    flags = ["--rehearse", "--data", tmp_path, "--output", tmp_path / "new"]  # where no corpus is prepared
    flags += ["--section", "translation", "--section", "attention"]
    with pytest.raises(UserError, match="not all sections are done"):
        program.main([str(flag) for flag in flags])
    assert capsys.readouterr().out == "translation: ended with status 1\nattention: done\n"
    report = json.loads((tmp_path / "new" / "attention.json").read_text(encoding="utf-8"))
    assert report["rows"] and report["aims"]
    log = (tmp_path / "new" / "gpu.log").read_text(encoding="utf-8")
    assert "is not prepared" in log and "Traceback" not in log


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "attention"])
def test_rehearsal(data, tmp_path, name):
    flags = ["--rehearse", "--corpus", "toy", "--data", data, "--output", tmp_path / "new", "--section", name]
    done = script("gpu", *flags, anew=True)
    report = json.loads((tmp_path / "new" / f"{name}.json").read_text(encoding="utf-8"))
    assert report["benchmark"].endswith(name) and len(report) > 7, "nothing was measured"
    assert done.stdout.endswith(f"{name}: done\n")
    assert f"## {name}" in (tmp_path / "new" / "gpu.log").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_the_paper_goes_on_from_what_a_call_brings_back(data, tmp_path):
    """Its second run starts from the weights of the first, and brings back its own in their place."""
    corpus = shutil.copytree(data / "toy", tmp_path / "data" / "toy")
    for file in [*(corpus / "text").rglob("train.*")]:
        file.unlink()  # which need not be carried along
    folder = tmp_path / "new"
    flags = ["--rehearse", "--corpus", "toy", "--data", corpus.parent, "--output", folder]
    flags += ["--section", "paper", "--system", "alpha_entmax"]

    def alphas(run):
        return [
            json.loads(line) for line in read_text(folder / "paper" / run / "alpha.jsonl", "").splitlines()
        ]

    for name in ("alpha_entmax", "alpha_entmax_2"):
        script("gpu", *flags, anew=True)
        found = json.loads((folder / "paper.json").read_text(encoding="utf-8"))[name]
        assert found["updates"] == found["planned"] == 9 and found["layers"][0]["density_mean"] > 0
        assert [part.name for part in folder.glob("*.int8.*")] == [f"{name}.int8.1-of-1"]
        assert read_text(folder / "paper" / f"{name}-seed1" / "evaluation" / "test.en", "")
    first, second = alphas("alpha_entmax-seed1"), alphas("alpha_entmax_2-seed1")
    last, begin = (torch.tensor(lines["encoder_self"]) for lines in (first[-1], second[0]))
    torch.testing.assert_close(begin, last, rtol=0, atol=1e-3)
    assert first[0]["encoder_self"] != second[0]["encoder_self"]
    refused(script("gpu", *flags, check=False, anew=True), "gpu.log")
    assert "both runs" in (folder / "gpu.log").read_text(encoding="utf-8")
