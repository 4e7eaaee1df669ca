"""A multilingual model loaded by ``from_pretrained`` cannot translate, which ends with a TypeError.

In all versions since 0.10.1 ``translate`` hands the task a function that its ``build_generator`` does not
take. And the task ``multilingual_translation`` refuses a model of one encoder and one decoder without naming
a task that takes it. Unnecessary once every task takes what ``hub_utils`` hands it, and names the other task.
"""

from __future__ import annotations

import functools
from argparse import Namespace

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY, FairseqMultiModel
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from omegaconf import DictConfig, OmegaConf

from ..errors import UserError, exit_on_user_error


def install() -> None:
    """Hand the function on among the settings of the search, and name the other task."""
    search = TranslationMultiSimpleEpochTask.build_generator

    @functools.wraps(search)
    def build_generator(self, models, args, *others, prefix_allowed_tokens_fn=None, **kwargs):
        if prefix_allowed_tokens_fn is not None:
            values = OmegaConf.to_container(args) if isinstance(args, DictConfig) else vars(args)
            args = Namespace(**{**values, "prefix_allowed_tokens_fn": prefix_allowed_tokens_fn})
        return search(self, models, args, *others, **kwargs)

    TranslationMultiSimpleEpochTask.build_generator = build_generator
    build = MultilingualTranslationTask.build_model

    @functools.wraps(build)
    def build_model(self, args, from_checkpoint=False):
        name = getattr(args, "_name", None) or getattr(args, "arch", None)
        kind = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
        if isinstance(kind, type) and not issubclass(kind, FairseqMultiModel):
            with exit_on_user_error():
                raise UserError(
                    f"{name} has one encoder and one decoder; the task multilingual_translation takes "
                    "models with several: use --task translation_multi_simple_epoch"
                )
        return build(self, args, from_checkpoint)

    MultilingualTranslationTask.build_model = build_model
