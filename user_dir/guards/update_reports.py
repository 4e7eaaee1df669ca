"""fairseq informs the model of an update only when the next one begins.

fairseq (0.12.2 and later) calls ``set_num_updates`` in the task's ``train_step``, so checkpoints and
validation can come between an update and its report. PyTorch's hook after an optimizer step comes too early:
in half precision the model still has the previous parameters. Unnecessary once fairseq's trainer informs the
model when an update is complete.
"""

from fairseq.trainer import Trainer

from .installing import around


@around(Trainer, "train_step")
def train_step(step, self, *args, **kwargs):
    """Call ``model.after_update(n)`` before the first update of a run and after each update."""
    report = getattr(self.get_model(), "after_update", lambda updates: None)
    report(self.get_num_updates())
    logged = step(self, *args, **kwargs)
    report(self.get_num_updates())
    return logged
