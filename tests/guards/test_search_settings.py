"""Settings with which a search cannot be computed are refused wherever a generator is built."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import build, dictionary

import user_dir.models  # noqa: F401  installs the guards
from user_dir.decoding.generator import FastGenerator
from user_dir.errors import UserError
from user_dir.guards.search_settings import check_bleu_args

KINDS = [FastGenerator, SequenceGenerator, SequenceGeneratorWithAlignment]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings",
    [{"len_penalty": value} for value in (0, 1, -1.5, 10, -10, 18, -18)]
    + [{"temperature": 1e-3}, {"temperature": 1e3}, {"unk_penalty": float("inf")}, {"max_len_a": 1e6}],
    ids=str,
)
def test_what_is_accepted_is_computed(searched, kind, settings):
    """50¹⁸ is 4·10³⁰, and so are all scores finite, in both searches."""
    for hypotheses in searched(kind, **settings)[2]:
        assert hypotheses
        for each in hypotheses:
            assert len(each["tokens"]) and torch.isfinite(each["score"]) and each["score"] <= 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [("lenpen", "len_penalty", value) for value in (19, -19, 1e300, -1e300, float("nan"), float("-inf"), "1")]
    + [("temperature", "temperature", value) for value in (0, -1, 1e-4, 1e9, float("nan"), None)]
    + [("beam", "beam_size", value) for value in (0, -3, 2.5, float("nan"))]
    + [("unkpen", "unk_penalty", float("nan")), ("max_len_a", "max_len_a", float("inf"))],
)
def test_what_cannot_be_computed_is_refused(searched, kind, name, argument, value):
    with pytest.raises(UserError, match=name) as refusal:
        searched(kind, **{argument: value})
    shown = str(value) if not isinstance(value, float) else f"{value:g}".split("e")[0]
    assert shown in str(refusal.value)


def test_a_task_refuses_too():
    words, model = dictionary(), build("--max-target-positions 50")
    task = TranslationTask(TranslationConfig(), words, words)
    task.build_generator([model], GenerationConfig(lenpen=2.0))
    with pytest.raises(UserError, match=r"lenpen.*500"):
        task.build_generator([model], GenerationConfig(lenpen=500.0))


@pytest.mark.parametrize(
    "text",
    [None, "", "{}", '{"beam": 4, "lenpen": 0.6}', '{"max_len_a": 1, "sampling": true, "constraints": null}'],
)
def test_settings_of_validation_are_accepted(text):
    check_bleu_args(text)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"lenpn": 0.6}', "lenpn"),
        ('{"lenpen": "0.6"}', "lenpen"),
        ('{"beam": 1.5}', "beam"),
        ('{"beam": "x"}', "beam"),
        ('{"sampling": "no"}', "sampling"),
        ("[1]", r"\[1\]"),
        ("beam=1", "beam=1"),
    ],
)
def test_settings_of_validation_are_refused(text, word):
    with pytest.raises(ValueError, match=word):
        check_bleu_args(text)


@pytest.mark.parametrize("args", ['{"lenpen": 1e9}', '{"lenpn": 1}', '{"lenpen": NaN}'])
def test_a_training_ends_before_it_begins(args, monkeypatch):
    """Not by an Exception, for which hydra prints a traceback."""
    task = TranslationTask(TranslationConfig(eval_bleu=True, eval_bleu_args=args), *[dictionary()] * 2)
    model = build("--max-target-positions 50")
    monkeypatch.setattr(TranslationTask.__mro__[1], "build_model", lambda *_: model)
    with pytest.raises(SystemExit, match=r"lenpe?n") as end:
        task.build_model(SimpleNamespace(_name="adaptively_sparse_transformer"))
    assert not isinstance(end.value, Exception)
