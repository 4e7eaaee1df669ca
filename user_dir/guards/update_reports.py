"""A model hears of an update only as the next one begins.

fairseq calls ``set_num_updates`` from the task's ``train_step`` (0.12.2 and later), so that a checkpoint or a
validation comes between an update and the report of it. PyTorch's hook after an optimizer's step comes too
early: in half precision the model still has the parameters of before. Unnecessary once fairseq's trainer
calls the model when an update is complete.
"""

from __future__ import annotations

import functools

from fairseq.trainer import Trainer


def install() -> None:
    """Call ``model.after_update(n)`` before the first update of a run, and after each."""
    train_step = Trainer.train_step

    @functools.wraps(train_step)
    def reporting_train_step(self, *args, **kwargs):
        report = getattr(self.get_model(), "after_update", None)
        if report is None:
            return train_step(self, *args, **kwargs)
        report(self.get_num_updates())
        logged = train_step(self, *args, **kwargs)
        report(self.get_num_updates())
        return logged

    Trainer.train_step = reporting_train_step
