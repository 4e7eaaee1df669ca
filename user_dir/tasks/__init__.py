"""The door: what fairseq imports first of ``--user-dir``, which registers all that the plugin brings.

It registers the models, the post-editor, the tasks and the criterions, puts our search and the graphs in
place, and then the guards, which stand around them. Whoever has imported another part of the package before
fairseq reads ``--user-dir`` imports this package, too.
"""

from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from .. import guards, models, post_editing
from ..decoding import generator
from ..graphs import training
from . import bpe_dropout, entmax_loss

training.CRITERIONS.add(entmax_loss.EntmaxLossCriterion)
guards.put_around(FairseqTask, "build_generator", generator.build_generator)
guards.put_around(Trainer, "get_train_iterator", training.get_train_iterator)
guards.put_around(Trainer, "train_step", training.train_step)
guards.put_around(Trainer, "valid_step", training.valid_step)
guards.put_around(FairseqTask, "train_step", training.task_train_step)
guards.install()

__all__ = ["bpe_dropout", "entmax_loss", "models", "post_editing"]
