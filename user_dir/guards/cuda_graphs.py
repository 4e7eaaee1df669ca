"""fairseq launches every kernel of an update from Python, so that a GPU waits for most of the time.

All versions of fairseq are affected, most of all with small models and batches. Updates are replayed from
CUDA graphs where that is possible (:mod:`..graphs`): for models of this plugin by default, for fairseq's
``transformer`` if ``--cuda-graphs`` asks for it. Unnecessary once fairseq replays updates.
"""

from fairseq.models.transformer import TransformerModel
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from ..errors import exit_on_user_error
from .installing import around


@around(TransformerModel, "add_args")
def add_args(add, cls, parser):
    """Add the flag."""
    from ..graphs import add_graph_flag

    add(cls, parser)
    add_graph_flag(parser)


@around(Trainer, "get_train_iterator")
def get_train_iterator(get, self, *args, **kwargs):
    """Remember the batches, for whose shapes there will be graphs."""
    self.train_iterator = get(self, *args, **kwargs)
    return self.train_iterator


@around(Trainer, "train_step")
def train_step(step, self, samples, raise_oom=False):
    """Replay what can be replayed of an update."""
    from ..graphs.start import training_graphs

    with exit_on_user_error():
        if not hasattr(self, "graphs"):
            iterator = getattr(self, "train_iterator", None)
            self.task.graphs = self.graphs = iterator and training_graphs(self, iterator)
        if self.graphs is None:
            return step(self, samples, raise_oom)
        self.graphs.begin_update(len(samples))
        try:
            logged = step(self, samples, raise_oom)
        except (FloatingPointError, StopIteration):  # the latter by fairseq's search for the module at fault
            self.graphs.check_losses()
            raise
        self.graphs.end_update()
        return logged


@around(Trainer, "valid_step")
def valid_step(step, self, sample, raise_oom=False):
    """Release the memory of graphs if it is needed: fairseq validates a batch again when memory ran out."""
    if raise_oom and getattr(self, "graphs", None) is not None:
        self.graphs.release("in validation")
    return step(self, sample, raise_oom)


@around(FairseqTask, "train_step")
def task_train_step(step, self, sample, model, criterion, optimizer, update_num, ignore_grad=False, **more):
    """Replay a batch, if it can be replayed."""

    def plain():
        return step(self, sample, model, criterion, optimizer, update_num, ignore_grad, **more)

    graphs = getattr(self, "graphs", None)
    if graphs is None or ignore_grad or more:
        return plain()
    with exit_on_user_error():
        return graphs.step(plain, sample, optimizer, update_num)
