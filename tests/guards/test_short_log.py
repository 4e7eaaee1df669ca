"""What train.py prints: a line for each interval that fits a terminal, and everything in the log file."""

import logging
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.logging import progress_bar

from user_dir.guards import short_log
from user_dir.guards.short_log import training_line, validation_line

STATS = {
    "loss": 11.0123456,
    "nll_loss": 10.9,
    "ppl": 1234.56789,
    "wps": 12345.6,
    "num_updates": 12_345,
    "lr": 0.000123456789,
    "gnorm": 1.5,
    "alpha_encoder_self_mean": 1.54321,
    "alpha_decoder_self_mean": 1.41234,
    "alpha_decoder_context_mean": 1.6,
}


def test_a_line_fits_a_terminal():
    line = training_line("99", 100_000, STATS)
    expected = " 12345/100000  epoch 99  loss 11.01  ppl 1235  α 1.54 1.41 1.60  lr 0.000123"
    assert line == expected + "  12346 words/s"
    assert len(line) <= 100


def test_what_is_not_measured_is_left_out():
    stats = {"loss": 2.0, "num_updates": 7}
    assert training_line("1", 0, stats) == "update 7  epoch 1  loss 2"
    line = training_line("1", 0, {**stats, "alpha_decoder_self_mean": 1.5})
    assert line == "update 7  epoch 1  loss 2  α - 1.50 -"
    stats = {"loss": 3.25, "ppl": 6.5, "bleu": 31.25, "best_bleu": 32.0, "num_updates": 7}
    expected = "valid: update 7  epoch 1  loss 3.25  ppl 6.5  bleu 31.25  best bleu 32"
    assert validation_line("1", "valid", stats) == expected


@pytest.fixture
def short(monkeypatch, tmp_path):
    """The guard at work, with a log file; returns the file."""
    for name in ("verify_checkpoint_directory", "load_checkpoint"):
        monkeypatch.setattr(checkpoint_utils, name, getattr(checkpoint_utils, name))
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint", lambda cfg, trainer, **iterator: "restored")
    file = logging.FileHandler(tmp_path / "train.log", encoding="utf-8")
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(), file])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    monkeypatch.setenv(short_log.VARIABLE, short_log.SHORT)
    short_log.install()
    yield tmp_path / "train.log"
    file.close()


@pytest.mark.parametrize(("updates", "epochs"), [(3, 0), (9, 1)])
def test_the_terminal_has_the_short_log_and_the_file_all(short, tmp_path, capsys, updates, epochs):
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    logging.getLogger("fairseq_cli.train").info("{'common': 'settings'}")
    logging.getLogger("fairseq.trainer").warning("a warning")
    common = SimpleNamespace(log_format=None)
    optimization = SimpleNamespace(max_update=updates, max_epoch=epochs)
    cfg = SimpleNamespace(common=common, optimization=optimization, model=SimpleNamespace(_name="tiny"))
    model = SimpleNamespace(parameters=lambda: [], alpha_values=dict)
    trainer = SimpleNamespace(cfg=cfg, device="cpu", get_model=lambda: model)
    assert checkpoint_utils.load_checkpoint(None, trainer) == "restored"
    epoch = progress_bar.progress_bar([1, 2, 3], log_format=common.log_format, log_interval=1, epoch=1)
    for update, _ in enumerate(epoch, start=1):
        epoch.log({**STATS, "num_updates": update}, tag="train_inner", step=update)
    epoch.print({**STATS, "num_updates": 3}, tag="train", step=3)
    prefix = "valid on 'valid' subset"
    validation = progress_bar.progress_bar([1], log_format=common.log_format, epoch=1, prefix=prefix)
    assert list(validation) == [1]
    validation.print({"loss": float("nan"), "ppl": 1e9, "num_updates": 3}, tag="valid", step=3)
    progress_bar.progress_bar([], log_format="json", epoch=1).print({"loss": 2.5}, tag="train", step=3)
    logging.getLogger("fairseq_cli.train").info("done training in 3 seconds")

    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "warning: a warning"
    assert shown[1] == f"training tiny (0 parameters) on cpu; full log: {tmp_path / 'train.log'}"
    expected = "1/3  epoch 1  loss 11.01  ppl 1235  α 1.54 1.41 1.60  lr 0.000123  12346 words/s"
    assert shown[3] == expected
    assert [line.split("  ")[0] for line in shown[4:6]] == ["2/3", "3/3"]
    assert shown[6] == "valid: update 3  epoch 1  loss nan  ppl 1e+09"
    assert shown[7:] == ['{"epoch": 1, "train_loss": "2.5"}', "done training in 3 seconds"]
    whole = short.read_text(encoding="utf-8")
    for words in ("settings", "a warning", "gnorm=1.5", "gnorm 1.5", "valid on 'valid' subset", "done train"):
        assert words in whole
