"""The greedy mean of checkpoints, on a synthetic validation set."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import build, checkpoint_state, dictionary
from test_split import FakeTask

from user_dir.analysis import greedy_average as greedy
from user_dir.analysis.split import Split
from user_dir.checkpoints import save_checkpoint
from user_dir.commands import average_checkpoints

SIZES = [5, 3, 9, 2]
SCHEDULE = "--alpha-schedule linear --alpha-schedule-updates 10"


def saved(path, model, updates: int):
    history = [{"num_updates": updates}]
    save_checkpoint(checkpoint_state(model=model.state_dict(), optimizer_history=history), path)
    return path


@pytest.mark.parametrize("reverse", [False, True])
def test_scheduled_alphas_are_those_of_each_checkpoint(tmp_path, monkeypatch, reverse):
    """Oracle: PyTorch's cross-entropy of the model at that update; the parameters are the same."""
    model, task = build(SCHEDULE).eval(), FakeTask(SIZES)
    task.source_dictionary = dictionary()
    paths = {saved(tmp_path / f"{updates}.pt", model, updates): updates for updates in (0, 5, 10)}
    split = Split(None, None, "valid", "valid", model, task)
    (sample,) = split.samples()
    expected = {}
    for path, updates in paths.items():
        model.set_num_updates(updates)
        with torch.no_grad():
            scores = model(**sample["net_input"])[0].flatten(0, 1)
        loss = F.cross_entropy(scores, sample["target"].flatten(), ignore_index=split.padding)
        expected[path] = loss.item()
    assert len(set(expected.values())) == 3

    monkeypatch.setattr(greedy, "open_split", lambda *_, **__: split)
    given = sorted(paths, reverse=reverse)
    model.set_num_updates(paths[given[0]])  # as open_split does
    _, chosen = greedy.greedy_average(given, None)
    first = min(expected, key=expected.get)
    assert next(iter(chosen)) == first and chosen[first] == pytest.approx(expected[first], rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "printed"),
    [({}, math.exp(2)), ({"output_alpha": 1.0}, math.exp(2)), ({"output_alpha": 1.5}, 2.0)],
)
def test_of_sparse_outputs_the_loss_is_printed(tmp_path, monkeypatch, capsys, settings, printed):
    path, state = tmp_path / "a.pt", checkpoint_state(settings)
    save_checkpoint(state, path)
    monkeypatch.setattr(greedy, "greedy_average", lambda *_, **__: (state, {path: 3.0, tmp_path: 2.0}))
    monkeypatch.setattr("user_dir.translation.direction.corpus_of", lambda *_: None)
    average_checkpoints.main(["--path", str(path), "--greedy", "--output", str(tmp_path / "mean.pt")])
    said = capsys.readouterr().out
    assert ("perplexity" in said) == (printed != 2) and f" {printed:.3f}" in said
