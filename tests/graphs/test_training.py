"""Trainings on the buffers of graphs beside ordinary ones; without a GPU, a replay is a plain call."""

from __future__ import annotations

import logging

import pytest
import torch
from trainings import LM, OURS, Training, assert_same

from user_dir.graphs.recorder import Recorder
from user_dir.graphs.shapes import StaticBatch
from user_dir.graphs.training import Gradients, training_graphs

UPDATES = 10  # of two epochs


@pytest.fixture
def train(data):
    """``train(updates, flags, **settings)``: the same with graphs."""
    return lambda updates, flags="", how="on", **settings: Training(
        data, f"{flags} --cuda-graphs {how}", **settings
    ).run(updates)


@pytest.mark.parametrize(
    ("flags", "arch"),
    [
        pytest.param("", OURS, marks=pytest.mark.nightly),
        ("--update-freq 2 --sentence-avg --clip-norm 0.5", OURS),
        pytest.param("--criterion cross_entropy", LM, marks=pytest.mark.nightly),
        pytest.param("--left-pad-source --max-tokens 100", OURS, marks=pytest.mark.nightly),
        pytest.param("--output-alpha 1.5 --criterion entmax_loss", OURS, marks=pytest.mark.nightly),
    ],
)
def test_updates_and_what_they_log_are_the_same(train, plain, flags, arch):
    """With all batches of at least two epochs, the last one of an epoch among them."""
    there, here = plain(UPDATES, flags, arch=arch), train(UPDATES, flags, arch=arch)
    assert_same(here, there)
    assert min(here.losses[-4:]) < 0.98 * max(here.losses[:4]), "nothing was learned"
    for ours, theirs in zip(here.logged, there.logged):
        assert ours.keys() - theirs.keys() == {"replayed", "graphs"} and not theirs.keys() - ours.keys()
        for name in theirs.keys() - {"wps", "ups", "train_wall", "gnorm"}:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5), name
    assert here.logged[-1]["replayed"] == 1 and 1 < here.logged[-1]["graphs"] <= len(here.graphs.shapes)


@pytest.mark.nightly
def test_a_shape_has_more_rows_than_a_batch(train, monkeypatch):
    """So that the test above would notice a row without a sentence."""
    empty, fill = [], StaticBatch.fill

    def counted(self, sample):
        fill(self, sample)
        empty.append((self.tokens["target"] == self.pad).all(1).any().item())

    monkeypatch.setattr(StaticBatch, "fill", counted)
    train(UPDATES // 2)
    assert any(empty)


@pytest.mark.nightly
@pytest.mark.parametrize("flags", ["--fp16 --fp16-no-flatten-grads", "--bf16"])
def test_half_precision(train, plain, flags):
    """In float16 with a loss scale that changes every second update."""
    flags += " --fp16-scale-window 2 --fp16-init-scale 4"
    here, there = (run(8, flags) for run in (train, plain))
    assert_same(here, there, 2e-2)
    assert here.logged[-1]["replayed"] == 1
    if "--bf16" not in flags:
        scales = [values["loss_scale"] for values in here.logged]
        assert scales == [values["loss_scale"] for values in there.logged] and scales[-1] >= 4 * scales[0]


@pytest.mark.nightly
def test_what_a_recording_would_keep_is_read_at_every_replay(train, monkeypatch):
    """Places of inputs, gradients and loss scale do not move; a replay sees what they hold."""
    seen = []

    def watched(self, function):
        def replay():
            cells = [cell.cell_contents for cell in function.__closure__]
            (batch,) = (content for content in cells if isinstance(content, StaticBatch))
            inputs = [tensor.data_ptr() for tensor in batch.tokens.values()]
            gradients = [parameter.grad.data_ptr() for parameter in graphs().parameters]
            seen.append((batch.tokens["target"].shape, inputs, gradients, graphs().scale.data_ptr()))
            return function()

        return replay

    monkeypatch.setattr(Recorder, "record", watched)
    training = train(0)

    def graphs():
        return training.graphs

    training.run(UPDATES)
    by_shape = {}
    for shape, *places in seen:
        assert by_shape.setdefault(shape, places) == places
    assert len(seen) > len(by_shape)


# -------------------------------------------------------------------------- updates that are not replayed

LATENT = "--latent-alignment --latent-alignment-soft --criterion cross_entropy"
BANDS = "--adaptive-softmax-cutoff 6,12 --criterion adaptive_loss --ddp-backend legacy_ddp"
OUTPUT_SCHEDULE = (
    "--criterion entmax_loss --output-alpha 1.5 --output-alpha-start 1.1 --output-alpha-updates 2"
)


@pytest.mark.parametrize(
    ("flags", "until"),
    [
        ("--alpha-freeze-updates 3", 3),  # test_replay.py has the reasons for all of them
        pytest.param(OUTPUT_SCHEDULE, 2, marks=pytest.mark.nightly),
    ],
)
def test_updates_in_which_the_host_sets_alpha(train, plain, flags, until, caplog):
    with caplog.at_level(logging.INFO):
        here = train(UPDATES, flags)
    assert_same(here, plain(UPDATES, flags))
    replayed = [values["replayed"] for values in here.logged]
    assert replayed[: until + 1] == [0] * (until + 1) and 1 in replayed
    assert caplog.text.count(f"until update {until}") == 1


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        pytest.param(LATENT, "latent", marks=pytest.mark.nightly),
        pytest.param(BANDS, "AdaptiveLoss", marks=pytest.mark.nightly),
        ("--report-accuracy", "--report-accuracy"),
        ("--amp", "--fp16"),
    ],
)
def test_what_cannot_be_replayed_is_said(data, caplog, flags, word):
    with pytest.raises(SystemExit) as stopped:
        Training(data, f"{flags} --cuda-graphs on").run(1)
    assert word in str(stopped.value.code) and "--cuda-graphs" in str(stopped.value.code)
    if "--amp" in flags:
        return  # which computes otherwise on a GPU
    with caplog.at_level(logging.INFO):
        training = Training(data, f"{flags} --cuda-graphs auto")
        training.trainer.cuda = True
        assert training_graphs(training.trainer, training.trainer.train_iterator) is None
    assert caplog.text.count(word) == 1 and "without CUDA graphs" in caplog.text


@pytest.mark.parametrize("flags", ["--cuda-graphs auto", ""])
def test_by_default_there_are_none_on_a_cpu(data, flags):
    training = Training(data, flags).run(1)
    assert training.graphs is None and "replayed" not in training.logged[0]


def test_a_batch_that_fits_no_shape_is_computed_as_before(train, plain):
    here = train(1)
    here.graphs.shapes = here.graphs.shapes[:2]
    here.run(UPDATES - 1)
    assert_same(here, plain(UPDATES))
    assert {values["replayed"] for values in here.logged[1:]} == {0, 1}


@pytest.mark.nightly
def test_gradients_of_an_update_may_be_of_both_kinds(train, plain):
    here = train(1, "--update-freq 3")
    here.graphs.shapes = here.graphs.shapes[:2]
    here.run(5)
    assert_same(here, plain(6, "--update-freq 3"))
    assert any(0 < values["replayed"] < 1 for values in here.logged[3:])


# ------------------------------------------------------------------------------------------- failures


def test_a_loss_that_is_never_finite_ends_it_as_before(train):
    ends = []
    for how in ("on", "off"):
        here = train(6, how=how)
        with torch.no_grad():
            here.model.decoder.layers[0].fc1.weight.fill_(float("nan"))
        with pytest.raises((FloatingPointError, StopIteration)) as end:  # the latter by fairseq's NanDetector
            here.run(1)
        ends.append((end.type, str(end.value)))
    assert ends[0] == ends[1]


def test_where_memory_runs_out_graphs_are_released(train, plain, monkeypatch, caplog):
    run, calls = Recorder.run, []

    def failing(self, function):
        result = run(self, function)  # the memory may run out after gradients were added
        calls.append(1)
        if len(calls) == 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return result

    monkeypatch.setattr(Recorder, "run", failing)
    here = train(UPDATES)
    assert_same(here, plain(UPDATES))
    assert not here.graphs.replays and here.logged[-1]["replayed"] == 0
    assert sum("memory ran out" in message for message in caplog.messages) == 1


def test_an_update_that_cannot_be_recorded_ends_or_is_computed_as_before(train, plain, monkeypatch, caplog):
    def record(*_):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Recorder, "record", record)
    here = train(0)
    with pytest.raises(SystemExit, match="not permitted"):
        here.run(1)
    here = train(0, how="auto")
    here.trainer.cuda = True  # not for what fairseq does then
    graphs = training_graphs(here.trainer, here.trainer.train_iterator)
    here.trainer.cuda = False
    here.trainer.graphs = here.trainer.task.graphs = graphs
    here.run(5)
    assert_same(here, plain(5))
    assert graphs.stopped and sum("not permitted" in message for message in caplog.messages) == 1


@pytest.mark.nightly
def test_validation_gets_the_memory_of_graphs(train, caplog):
    here = train(6)
    assert here.graphs.replays
    (sample,) = list(here.trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False))[:1]
    here.trainer.valid_step(sample)
    assert here.graphs.replays
    here.trainer.valid_step(sample, raise_oom=True)  # as fairseq does when memory ran out
    assert not here.graphs.replays and "memory ran out" in caplog.text
    assert here.run(1).logged[-1]["replayed"] == 0


# ------------------------------------------------------------------------------------------ resuming


@pytest.mark.nightly
def test_a_checkpoint_does_not_depend_on_graphs(data, tmp_path, plain):
    """Resumed with or without graphs from a checkpoint of a run with them."""
    flags = f"--save-dir {tmp_path} --momentum 0.9"
    first = Training(data, f"{flags} --cuda-graphs on").run(4)
    ends = {}
    for how in ("on", "off"):
        resumed = Training(data, f"{flags} --cuda-graphs {how} --restore-file {save(first, tmp_path, how)}")
        ends[how] = resumed.run(4)
    assert_same(ends["on"], ends["off"])
    through = plain(8, "--momentum 0.9")
    assert ends["on"].losses == pytest.approx(through.losses[4:], rel=1e-6)


def save(training, folder, name):
    path = folder / f"{name}.pt"
    position = training.epochs.state_dict()
    training.trainer.consolidate_optimizer()
    training.trainer.save_checkpoint(str(path), {"train_iterator": position, "val_loss": None})
    return path


# -------------------------------------------------------------------------------------- setting, gradients


def test_unknown_values_are_refused(data):
    training = Training(data, "--cuda-graphs sometimes")
    with pytest.raises(SystemExit, match="auto, off, on"):
        training.run(1)


def test_gradients_add_up_in_place_and_start_at_zero():
    used, other, unused = (torch.nn.Parameter(torch.full((2,), float(i))) for i in range(3))
    gradients = Gradients()
    assert gradients.restore(), "before the first batch there are none"
    (used * 2 + other).sum().backward()
    assert gradients.adopt([used, other, unused]) and not gradients.adopt([used, other, unused])
    place = gradients.places[used]
    (used * 3).sum().backward()
    assert not gradients.restore(), "in the middle of an update they are kept"
    assert used.grad is place and used.grad.tolist() == [5, 5] and other.grad.tolist() == [1, 1]
    used.grad = other.grad = None  # as fairseq does
    assert gradients.restore()
    assert used.grad is place and used.grad.tolist() == other.grad.tolist() == [0, 0]
    assert unused.grad is None, "an optimizer would move it"
    used.grad = torch.tensor([7.0, 8.0])
    assert not gradients.restore() and used.grad is place and used.grad.tolist() == [7, 8]
