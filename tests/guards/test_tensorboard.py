"""TensorBoard's files where they cannot be written."""

from queue import Queue
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.logging.progress_bar import SimpleProgressBar, TensorboardProgressBarWrapper

from user_dir.guards import tensorboard


@pytest.fixture
def exits(monkeypatch):
    """The statuses that the process would have ended with at once."""
    statuses = []
    monkeypatch.setattr(tensorboard.os, "_exit", statuses.append)
    return statuses


def test_tensorboard_where_it_cannot_write(tmp_path, exits, capsys):
    (tmp_path / "file").touch()
    bar = TensorboardProgressBarWrapper(SimpleProgressBar([]), str(tmp_path / "file" / "logs"))
    bar.log({"loss": 1.0}, tag="train", step=1)
    assert exits == [1]
    assert capsys.readouterr().err.startswith("error: cannot write to --tensorboard-logdir: Not a directory;")


def test_tensorboards_thread_does_not_die_alone(tmp_path, exits, hooks, capsys):
    """tensorboardX would wait for the next event to be taken, for ever."""
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    worker = pytest.importorskip("tensorboardX.event_file_writer")._EventLoggerThread

    def refuse(event):
        raise OSError(28, "No space left on device")

    events = Queue()
    thread = worker(events, SimpleNamespace(write_event=refuse), 120)
    events.put("event")
    thread.start()
    thread.join(60)
    assert exits == [1]
    assert "error: cannot write to --tensorboard-logdir: No space left on device;" in capsys.readouterr().err
