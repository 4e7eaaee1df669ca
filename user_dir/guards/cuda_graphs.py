"""fairseq launches every kernel of an update from Python, so that a GPU waits for most of the time.

All versions of fairseq are affected, most of all with small models and batches. Updates of models of this
plugin are replayed from CUDA graphs where that is possible (:mod:`..graphs`). Unnecessary once fairseq
replays updates.
"""

from fairseq.models.transformer import TransformerModel
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from .installing import around


@around(TransformerModel, "add_args")
def add_args(add, cls, parser):
    """Add the flag to our models."""
    from ..graphs import add_graph_flag
    from ..models.heads import SparseHeads

    add(cls, parser)
    if issubclass(cls, SparseHeads):
        add_graph_flag(parser)


@around(Trainer, "get_train_iterator")
def get_train_iterator(get, self, *args, **kwargs):
    """Remember the batches, for whose shapes there will be graphs."""
    self.train_iterator = get(self, *args, **kwargs)
    return self.train_iterator


@around(Trainer, "train_step")
def train_step(*args, **kwargs):
    """Replay what can be replayed of an update."""
    from ..graphs import training

    return training.train_step(*args, **kwargs)


@around(Trainer, "valid_step")
def valid_step(*args, **kwargs):
    """Release the memory of graphs if it is needed."""
    from ..graphs import training

    return training.valid_step(*args, **kwargs)


@around(FairseqTask, "train_step")
def task_train_step(*args, **kwargs):
    """Replay a batch, if it can be replayed."""
    from ..graphs import training

    return training.task_train_step(*args, **kwargs)
