"""A translation command with a model that cannot translate ends with a traceback after loading it.

Examples are a language model as ``--path`` of ``fairseq-generate`` or as ``--arch`` of a translation task, or
a translation model as ``--lm-path``. All versions of fairseq build such a model and call it with unsupported
arguments. Unnecessary once fairseq's tasks check the kind of model.
"""

from __future__ import annotations

import functools

from fairseq import checkpoint_utils
from fairseq.models import (
    ARCH_MODEL_REGISTRY,
    MODEL_REGISTRY,
    FairseqEncoderModel,
    FairseqLanguageModel,
)
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask

from ..errors import UserError


class NoTranslationModel(UserError):
    """The task is translation, but the model cannot translate."""


def install() -> None:
    """Refuse models of the wrong kind before they are built or used."""
    build = TranslationTask.build_model

    @functools.wraps(build)
    def build_model(self, cfg, from_checkpoint=False):
        _require_translation_model(getattr(cfg, "_name", None) or getattr(cfg, "arch", None))
        return build(self, cfg, from_checkpoint)

    TranslationTask.build_model = build_model

    load = checkpoint_utils.load_model_ensemble_and_task

    @functools.wraps(load)
    def load_model_ensemble_and_task(filenames, *args, **kwargs):
        try:
            return load(filenames, *args, **kwargs)
        except NoTranslationModel as error:
            raise UserError(f"cannot translate with {':'.join(map(str, filenames))}: {error}") from None

    checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task

    build_search = FairseqTask.build_generator

    @functools.wraps(build_search)
    def build_generator(self, models, args, *others, **kwargs):
        language_model = (kwargs.get("extra_gen_cls_kwargs") or {}).get("lm_model")
        if language_model is not None and not isinstance(language_model, FairseqLanguageModel):
            raise UserError(
                f"--lm-path must name a language model; it is a {type(language_model).__name__}, which "
                "translates: give it as --path"
            )
        return build_search(self, models, args, *others, **kwargs)

    FairseqTask.build_generator = build_generator


def _require_translation_model(name: str | None) -> None:
    """Raise :class:`NoTranslationModel` if an architecture has no encoder or no decoder."""
    kind = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    if not isinstance(kind, type):
        return
    if issubclass(kind, FairseqLanguageModel):
        raise NoTranslationModel(
            f"{name} is a language model, which has no encoder; use a translation model, or give the "
            "language model as --lm-path beside one"
        )
    if issubclass(kind, FairseqEncoderModel):
        raise NoTranslationModel(f"{name} has no decoder; use a translation model")
