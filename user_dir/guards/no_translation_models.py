"""A translation command with a model that cannot translate ends with a traceback after loading it.

Examples are a language model as ``--path`` of ``fairseq-generate`` or as ``--arch`` of a translation task, or
a translation model as ``--lm-path``. All versions of fairseq build such a model and call it with unsupported
arguments. Unnecessary once fairseq's tasks check the kind of model.
"""

from fairseq import checkpoint_utils
from fairseq.models import FairseqEncoderModel, FairseqLanguageModel
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask

from ..errors import UserError
from ..sections import architecture, model_class
from .installing import around


class NoTranslationModel(UserError):
    """The task is translation, but the model cannot translate."""


@around(TranslationTask, "build_model")
def build_model(build, self, cfg, from_checkpoint=False):
    """Refuse a model that has no encoder or no decoder, before it is built."""
    name, kind = architecture(cfg), model_class(cfg) or object
    if issubclass(kind, FairseqLanguageModel):
        raise NoTranslationModel(
            f"{name} is a language model, which has no encoder; use a translation model, or give the "
            "language model as --lm-path beside one"
        )
    if issubclass(kind, FairseqEncoderModel):
        raise NoTranslationModel(f"{name} has no decoder; use a translation model")
    return build(self, cfg, from_checkpoint)


@around(checkpoint_utils, "load_model_ensemble_and_task")
def load_model_ensemble_and_task(load, filenames, *args, **kwargs):
    """Name the checkpoint of such a model."""
    try:
        return load(filenames, *args, **kwargs)
    except NoTranslationModel as error:
        raise UserError(f"cannot translate with {':'.join(map(str, filenames))}: {error}") from None


@around(FairseqTask, "build_generator")
def build_generator(build, self, models, args, *others, **kwargs):
    """Refuse what is no language model as --lm-path."""
    language_model = (kwargs.get("extra_gen_cls_kwargs") or {}).get("lm_model")
    if language_model is not None and not isinstance(language_model, FairseqLanguageModel):
        raise UserError(
            f"--lm-path must name a language model; it is a {type(language_model).__name__}, which "
            "translates: give it as --path"
        )
    return build(self, models, args, *others, **kwargs)
