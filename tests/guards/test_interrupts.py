"""Ctrl-C during a training."""

import os
import signal
import sys

from fairseq import checkpoint_utils


def test_only_an_interrupt_is_told_in_a_sentence(tmp_path, hooks, monkeypatch, capsys):
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    ends = []
    monkeypatch.setattr(signal, "signal", lambda *given: ends.append(given))
    monkeypatch.setattr(os, "kill", lambda *given: ends.append(given))
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "interrupted; the same command, given again, starts from scratch\n"
    assert ends == [(signal.SIGINT, signal.SIG_DFL), (os.getpid(), signal.SIGINT)]
    (tmp_path / "checkpoint_last.pt").touch()
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert f"resumes from the last checkpoint in {tmp_path}\n" in capsys.readouterr().err
    sys.excepthook(KeyError, KeyError("name"), None)
    assert "KeyError: 'name'" in capsys.readouterr().err
