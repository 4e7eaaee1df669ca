"""The entry point of the plugin: fairseq imports it for ``--user-dir``, and it registers everything.

It registers the models, the post-editor, the tasks and the criterions, and installs our search, the graphs,
and then the guards, which wrap them. Code that imports another part of the plugin before fairseq reads
``--user-dir`` must also import this package.
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
