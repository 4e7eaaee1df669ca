"""A search with ``--lenpen 500`` ends with a traceback, or finds translations that score NaN or nothing.

In all versions fairseq takes any number for the settings of its search, and computes with it: the power of a
length overflows, a temperature divides by almost nothing. What ``--eval-bleu-args`` sets is not checked at
all, so that a misspelled name has no effect. Unnecessary once fairseq checks the settings of its search.
"""

import inspect
import json

from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask

from ..errors import UserError, exit_on_user_error
from ..io import shown
from ..search_numbers import check_length_penalty, check_numbers
from ..setting_types import setting_types
from .installing import around


@around(SequenceGenerator, "__init__")
def check_search(begin, self, *args, **kwargs):
    """Check the settings of every generator that is built."""
    given = inspect.signature(begin).bind(self, *args, **kwargs)
    given.apply_defaults()
    check_numbers(given.arguments)
    begin(self, *args, **kwargs)
    check_length_penalty(self.len_penalty, self.max_len)


@around(TranslationTask, "build_model")
def build_model(build, self, cfg, from_checkpoint=False):
    """Check the settings of validation when a training begins."""
    if from_checkpoint or not self.cfg.eval_bleu:
        return build(self, cfg, from_checkpoint)
    with exit_on_user_error():
        try:
            check_bleu_args(self.cfg.eval_bleu_args)
        except ValueError as error:
            raise UserError(f"eval_bleu_args {error}") from None
        return build(self, cfg, from_checkpoint)


def check_bleu_args(text: str | None) -> None:
    """Check the settings of the search in validation, ``eval_bleu_args``.

    Raises:
        ValueError: they are not settings of fairseq's search; the message completes ``eval_bleu_args``.
    """
    try:
        settings = json.loads(text or "{}")
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise ValueError(f'must be settings of the search in JSON, such as {{"beam": 1}}, not {shown(text)}')
    types = setting_types("generation", None)
    for name, value in settings.items():
        if name not in types:
            raise ValueError(f"has no setting {shown(name)}; it takes those of fairseq-generate")
        if types[name] is not None:
            try:
                if types[name](value) != value or (isinstance(value, str) and types[name].words != "text"):
                    raise ValueError(f"must be {types[name].words} without quotes, not {shown(value)}")
            except ValueError as error:
                raise ValueError(f"is wrong: {name} {error}") from None
