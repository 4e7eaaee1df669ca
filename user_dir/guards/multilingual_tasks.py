"""A multilingual model loaded by ``from_pretrained`` cannot translate, which ends with a TypeError.

In all versions since 0.10.1 ``translate`` hands the task a function that its ``build_generator`` does not
take. And the task ``multilingual_translation`` refuses a model of one encoder and one decoder without naming
a task that takes it. Unnecessary once every task takes what ``hub_utils`` hands it, and names the other task.
"""

from argparse import Namespace

from fairseq.models import FairseqMultiModel
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from omegaconf import DictConfig, OmegaConf

from ..errors import UserError, exit_on_user_error
from ..sections import architecture, model_class
from .installing import around


@around(TranslationMultiSimpleEpochTask, "build_generator")
def build_generator(build, self, models, args, *others, prefix_allowed_tokens_fn=None, **kwargs):
    """Hand the function on among the settings of the search."""
    if prefix_allowed_tokens_fn is not None:
        values = OmegaConf.to_container(args) if isinstance(args, DictConfig) else vars(args)
        args = Namespace(**{**values, "prefix_allowed_tokens_fn": prefix_allowed_tokens_fn})
    return build(self, models, args, *others, **kwargs)


@around(MultilingualTranslationTask, "build_model")
def build_model(build, self, args, from_checkpoint=False):
    """Name the other task, which takes a model of one encoder and one decoder."""
    kind = model_class(args)
    if kind is not None and not issubclass(kind, FairseqMultiModel):
        with exit_on_user_error():
            raise UserError(
                f"{architecture(args)} has one encoder and one decoder; the task multilingual_translation "
                "takes models with several: use --task translation_multi_simple_epoch"
            )
    return build(self, args, from_checkpoint)
