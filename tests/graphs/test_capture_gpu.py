"""What only a GPU can show: updates recorded in CUDA graphs, and their replays."""

import pytest
import torch
from trainings import Training, assert_same

from user_dir.graphs.recorder import Recorder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def train(data, updates, flags="", how="on", **settings):
    return Training(data, f"{flags} --cuda-graphs {how}", gpu=True, **settings).run(updates)


def without_recording(self, function):
    return function


@pytest.mark.parametrize(
    ("flags", "tolerance"),
    [
        ("", 1e-6),
        ("--update-freq 2 --clip-norm 0.5", 1e-6),
        ("--dropout 0.3 --attention-dropout 0.2", 1e-6),
        ("--fp16 --fp16-scale-window 10", 2e-2),
        ("--memory-efficient-fp16 --fp16-scale-window 10", 2e-2),
        ("--bf16", 5e-2),
    ],
)
def test_replays_give_what_the_same_buffers_give_without(data, monkeypatch, flags, tolerance):
    """With dropout, too, because a replay draws the numbers that an ordinary call would."""
    replayed = train(data, 50, flags)
    assert replayed.logged[-1]["replayed"] == 1
    monkeypatch.setattr(Recorder, "record", without_recording)
    assert_same(replayed, train(data, 50, flags), tolerance)


def test_replays_give_what_an_ordinary_training_gives(data):
    assert_same(train(data, 50), train(data, 50, how="off"), 1e-5)


def test_auto_takes_graphs_for_our_models_alone(data):
    assert train(data, 16, how="auto").logged[-1]["replayed"] == 1
    assert Training(data, gpu=True).run(1).graphs is not None
    assert Training(data, arch="transformer", gpu=True).run(1).graphs is None


def test_two_replays_drop_different_words(data):
    training = train(data, 20, "--dropout 0.5")
    trainer, graphs = training.trainer, training.graphs
    sample, _ = trainer._prepare_sample(next(iter(training.epochs.next_epoch_itr(shuffle=False))))
    graphs.begin_update(3)
    losses = []
    for seed in (5, 6, 5):
        torch.cuda.manual_seed(seed)
        trainer.zero_grad()
        arguments = (sample, trainer.model, trainer.criterion, trainer.optimizer, 20)
        losses.append(trainer.task.train_step(*arguments)[2]["loss"].item())
    assert graphs.replayed == 3
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[2], rel=1e-5)


def test_what_asks_the_host_is_not_recorded_and_training_goes_on(data, caplog):
    training = Training(data, "--cuda-graphs auto", gpu=True)
    layer = training.model.encoder.layers[0].fc1
    compute = type(layer).forward

    class Asking(type(layer)):
        def forward(self, x):
            assert x.sum().item() != 12345
            return compute(self, x)

    layer.__class__ = Asking
    stream = torch.cuda.current_stream()
    training.run(16)
    assert training.graphs.stopped and torch.cuda.current_stream() == stream
    assert sum("going on without CUDA graphs" in message for message in caplog.messages) == 1
    assert_same(training, train(data, 16, how="off"), 1e-5)
