"""From a trained model to its α's, figures, attention maps and head report, as a user would do it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from commands import of, page_data, read_alpha_log, refused, script

from user_dir.analysis.maps import read_maps

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reported(corpus, trained, once) -> tuple[Path, Path, str]:
    """The output of ``report.py`` for a checkpoint and a corpus, and what it printed."""

    def fill(folder):
        for name in ("checkpoint_last.pt", "alpha.jsonl"):
            shutil.copy(trained / name, folder)
        model = [*of(folder / "checkpoint_last.pt", corpus), "--name", "tiny"]
        output = ["--sentences", "4", "--output", folder / "heads.html"]
        done = script("report", *model, *output, anew="nightly")
        (folder / "said").write_text(done.stdout)

    folder = once("reported", fill)
    return folder / "checkpoint_last.pt", folder / "heads.html", (folder / "said").read_text()


def test_report_computes_what_is_missing_and_names_the_page(reported, corpus, tmp_path):
    checkpoint, output, said = reported
    assert said.strip().split("\n")[-1] == f"head report of tiny: {output}"
    page = page_data(output)
    statistics = json.loads(checkpoint.with_suffix(".valid.heads.json").read_text())
    assert [row["alpha"] for row in page["heads"]] == [round(row["alpha"], 6) for row in statistics["heads"]]
    assert page["trajectories"]["updates"] == [0, 4, 8, 12]  # alpha.jsonl is next to the checkpoint
    assert len(page["maps"]["sentences"]) == 4
    assert checkpoint.with_suffix(".valid.attention").is_dir()

    written = checkpoint.with_suffix(".valid.heads.json").stat().st_mtime
    where = [*of(checkpoint, corpus), "--output", tmp_path / "heads.html"]
    again = script("report", *where, "--sentences", "3")
    last = checkpoint.with_suffix(".valid.heads.json").stat().st_mtime
    assert last == written, "computed anew without need"
    assert "head report of" in again.stdout

    # Another split has its own files, and the files of two splits are not mixed.
    script("report", *where, "--subset", "test", "--sentences", "4")
    page = page_data(tmp_path / "heads.html")
    assert (page["about"]["subset"], page["about"]["update"]) == ("test", 12)
    maps = [read_maps(checkpoint.with_suffix(f".{subset}.attention")) for subset in ("valid", "test")]
    assert [(split[0].corpus, split[0].subset) for split in maps] == [("toy", "valid"), ("toy", "test")]
    assert page["maps"]["sentences"][0]["source"] == maps[1][0].source != maps[0][0].source
    assert maps[1][0].alphas["encoder_self"].shape == (2, 4)
    assert checkpoint.with_suffix(".valid.heads.json").stat().st_mtime == written


def test_alphas_of_a_log(trained, tmp_path):
    log = read_alpha_log(trained / "alpha.jsonl")[-1]
    types = ("encoder_self", "decoder_self", "decoder_context")
    last = [alpha for name in types for row in log[name] for alpha in row]
    output = tmp_path / "alphas.png"
    done = script("plot", trained / "alpha.jsonl", "--output", output, anew="nightly")
    assert "alpha at update 12" in done.stdout and f"{last[0]:.3f}" in done.stdout
    assert output.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_figures_for_papers(reported, trained, tmp_path):
    statistics, maps = (reported[0].with_suffix(f".valid.{end}") for end in ("heads.json", "attention"))
    log = ["--alpha-log", trained / "alpha.jsonl"]
    done = script("plot", statistics, *log, "--output", tmp_path, anew="nightly")
    named = done.stdout.split()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.split("/")[-1] for path in named)
    assert len(named) == 5
    assert "| encoder_self" in script("compare", "--system", "tiny", statistics).stdout
    heads = ["--head", "encoder_self:0:1,encoder_self:1:2", "--head", "decoder_context:1:0"]
    both = [maps, maps, "--name", "a", "--name", "b", "--sentence", "0", "--sentence", "3"]
    script("plot", *both, *heads, "--output", tmp_path / "maps.svg", anew="nightly")
    text = (tmp_path / "maps.svg").read_text(encoding="utf-8")
    assert text.count("layer 1, head 2") == 2
    assert text.count("context attention") == 4
    assert len(re.findall(r"layer 1, head 2, α = 1\.\d\d", text)) == 2


def test_invalid_arguments_end_with_an_error_message(reported, stock, tmp_path):
    checkpoint, _, _ = reported
    statistics, html = checkpoint.with_suffix(".valid.heads.json"), ["--output", tmp_path / "page.html"]

    def wrong(name, *flags):
        return script(name, *flags, check=False)

    refused(wrong("report", "--path", stock, *html), "no statistics", "--corpus")
    other = tmp_path / "other.heads.json"
    other.write_text(statistics.read_text().replace('"subset": "valid"', '"subset": "exam"'))
    splits = ["different splits", "toy, valid", "toy, exam", "--subset"]
    refused(wrong("report", "--statistics", statistics, "--statistics", other, *html), *splits)
    assert not (tmp_path / "page.html").exists()
