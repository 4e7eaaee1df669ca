"""experiments/run.py: interrupted, resumed, recorded; and its tables."""

from __future__ import annotations

import json
import os
import tarfile
from unittest import mock

import pytest
import sacrebleu
from commands import ROOT, checked, forks, lines, train_with

from experiments import run, tables
from user_dir.errors import UserError

pytestmark = pytest.mark.slow
UPDATES = 60  # in epochs of 20


@pytest.fixture(scope="module")
def plan(small, tmp_path_factory):
    """An experiment with one small run."""
    overrides = [f"task.data={small / 'bin'}", f"optimization.max_update={UPDATES}", "common.log_interval=4"]
    overrides += [f"model.{side}_layers=1" for side in ("encoder", "decoder")]
    overrides += [f"model.{side}_embed_dim=16" for side in ("encoder", "decoder")]
    overrides += ["dataset.max_tokens=1000", "dataset.num_workers=0"]
    # One validation sentence is too long for training, but not for the model.
    longest = max(len(line.split()) for line in (small / "text" / "spm" / "valid.de").open())
    overrides += [f"task.max_source_positions={longest}", "model.max_source_positions=64"]
    overrides += ["dataset.skip_invalid_size_inputs_valid_test=true"]
    entry = {"name": "alpha", "config": "configs/toy/alpha_entmax.yaml", "overrides": overrides}
    path = tmp_path_factory.mktemp("experiment") / "tiny.yaml"
    path.write_text(json.dumps({"average": 2, "importance": False, "runs": [entry]}))  # JSON is YAML
    return path


@pytest.mark.nightly
def test_an_interrupted_run_is_resumed_recorded_and_not_made_again(plan, small, monkeypatch):
    folder, records = plan.parent / "runs", plan.parent / "records"
    words = ["run.py", str(plan), "--folder", str(folder), "--records", str(records)]
    place, called = folder / "tiny" / "alpha-seed1", []

    def call(log, script, *arguments):  # in forks, which start in no time
        called.append(script)
        if called.count("scripts/heads.py") == 1:
            raise KeyboardInterrupt
        arguments = [str(word) for word in arguments if word not in ("ignore", "-m", "--verbose")]
        if script == "scripts/train.py":
            done = train_with(ROOT / arguments[0], *arguments[1:])
        else:
            done = checked(forks().run(*(["-m"] if script == "-W" else [script]), *arguments), True)
        with log.open("a", encoding="utf-8") as file:
            file.write(done.stdout + done.stderr)

    monkeypatch.setattr(run, "call", call)
    with mock.patch("sys.argv", [*words, "--only", "beta-*"]), pytest.raises(UserError, match="beta"):
        run.main()
    with mock.patch("sys.argv", words):
        with pytest.raises(KeyboardInterrupt):
            run.main()
        run.main()
    made = ["train", "average", "evaluate", "heads", "heads"]
    assert called == [*(f"scripts/{name}.py" for name in made), "-W"]
    result = json.loads((place / "result.json").read_text())
    training = result["training"]
    assert training["updates"] == UPDATES and training["epochs"] == 3 and training["sessions"] == 1
    assert training["tokens_per_second"] > 0 and training["seconds"] > 0
    assert len(training["valid_losses"]) == 3 and training["valid_losses"][-1] < training["valid_losses"][0]
    assert f"num. shared model params: {result['parameters']:,} " in (place / "training.log").read_text()
    assert (result["corpus"], result["direction"]) == ("mine", "de-en")
    assert result["validation"]["loss"] > 0.5 * result["validation"]["nll_loss"] > 0
    assert '"valid_bsz": "13"' in (place / "validate.log").read_text(), "of all sentences"
    for split, sentences in (("valid", 13), ("exam", 11)):
        scores = result["evaluation"][split]
        translations = lines(place / "evaluation" / f"{split}.en")
        subset = {"valid": "valid", "exam": "test"}[split]
        bleu = sacrebleu.corpus_bleu(translations, [lines(small / "text" / f"{subset}.en")]).score
        assert scores["sentences"] == sentences and scores["bleu"] == round(bleu, 2)
    assert 1 < result["heads"]["encoder_self"]["alpha_mean"] < 2
    assert not [*place.glob("checkpoint*.pt")]

    with tarfile.open(records / "tiny.tar.xz") as archive:
        names = archive.getnames()
        content = archive.extractfile("alpha-seed1/evaluation/exam.json").read()
    assert "alpha-seed1/result.json" in names and not [name for name in names if name.endswith(".pt")]
    assert str(place).encode() not in content
    monkeypatch.setattr(run, "make", None)  # nothing is made again, here or on another machine
    for elsewhere in (folder, plan.parent / "elsewhere"):
        with mock.patch("sys.argv", [*words[:3], str(elsewhere), *words[4:]]):
            run.main()
        assert "alpha" in tables.of_plan(plan, [], elsewhere, records)
    assert os.listdir(plan.parent / "elsewhere" / "tiny") == ["alpha-seed1"]
