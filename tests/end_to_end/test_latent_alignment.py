"""A model with a latent alignment in fairseq's commands and in align.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from commands import PLUGIN, here, lines, of, script, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoints(small, once) -> Path:
    """A folder of checkpoints of a model with a latent alignment, after 6 and 12 updates."""
    flags = "--latent-alignment --max-update 12 --save-interval-updates 6 --max-valid-steps 1"

    def fill(folder):
        done = train(small, folder, *flags.split())
        (folder / "log").write_text(done.stdout + done.stderr)

    return once("latent", fill)


def translations(output: str) -> dict[int, tuple[str, float]]:
    """Number of each sentence → its best hypothesis and score."""
    hypotheses = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, re.MULTILINE)
    return {int(number): (text, float(score)) for number, score, text in hypotheses}


def test_the_log_line_has_the_certificate(checkpoints):
    lines = re.findall(r"alignment_certified[=: ]+([\d.]+)", (checkpoints / "log").read_text())
    assert lines and all(0 <= float(value) <= 1 for value in lines)


SEARCH = "--source-lang de --target-lang en --beam 2 --max-len-b 6 --remove-bpe sentencepiece"


@pytest.fixture(scope="module")
def generated(small, checkpoints) -> dict:
    """What fairseq-generate gives for one checkpoint, and for an ensemble of two."""
    common = [small / "bin", *PLUGIN, *SEARCH.split(), "--max-tokens", "600", "--gen-subset", "valid"]
    last = checkpoints / "checkpoint_last.pt"
    both = f"{last}:{next(checkpoints.glob('checkpoint_*_6.pt'))}"
    paths = {"one": last, "both": both}
    return {name: translations(here("generate", *common, "--path", path)) for name, path in paths.items()}


def test_generate_alone_and_as_an_ensemble(generated):
    assert len(generated["one"]) == len(generated["both"]) == 13
    scores = [[score for _, score in hypotheses.values()] for hypotheses in generated.values()]
    assert scores[0] != scores[1] and all(score < 0 for row in scores for score in row)


def test_interactive_translates_like_generate(small, checkpoints, generated):
    sources = lines(small / "text" / "spm" / "valid.de")[:3]
    flags = [small / "bin", *PLUGIN, *SEARCH.split(), "--path", checkpoints / "checkpoint_last.pt"]
    hypotheses = translations(here("interactive", *flags, stdin="\n".join(sources) + "\n"))
    for number in range(3):
        text, score = hypotheses[number]
        assert text == generated["one"][number][0]
        assert score == pytest.approx(generated["one"][number][1], abs=1e-3)


def test_align_by_the_posterior(small, checkpoints, tmp_path):
    flags = [*of(checkpoints / "checkpoint_last.pt", small), "--subset", "valid"]
    script("align", *flags, "--output", tmp_path, "--sentences", "10")
    report = json.loads((tmp_path / "alignment.json").read_text())
    names = [row["name"] for row in report["candidates"]]
    assert names == [f"layer0-head{head}" for head in range(4)] + ["layer0", "all", "alignment"]
    links, target = lines(tmp_path / "alignment.pharaoh"), lines(small / "text" / "valid.en")
    assert len(links) == 10
    for line, words in zip(links, target):
        assert [int(link.split("-")[1]) for link in line.split()] == list(range(len(words.split())))


def test_the_checkpoint_has_its_settings(checkpoints):
    state = torch.load(checkpoints / "checkpoint_last.pt", weights_only=False)
    assert state["cfg"]["model"]["latent_alignment"] is True
    assert "decoder.alignment.alpha.a" in state["model"]
