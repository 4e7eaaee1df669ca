"""Flags of the model, sensible and not: a model that runs, or one sentence."""

from __future__ import annotations

import contextlib
import io
import math
from argparse import Namespace
from collections import Counter
from dataclasses import fields

import hypothesis
import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from helpers import batch, each_once, loss, parse, translation_task
from hypothesis import strategies as st
from search import search, sentence

from user_dir.attention import ATTENTION_TYPES, BACKENDS, AlphaConfig
from user_dir.attention.normalizers import NORMALIZERS

ARCHITECTURES = [  # language models and post-editors need other data
    name
    for name in ARCH_MODEL_REGISTRY
    if name.startswith("adaptively_sparse") and "_lm" not in name and "post_editor" not in name
]
SIZES = {
    **{f"{side}_embed_dim": 16 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": 8 for side in ("encoder", "decoder")},
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    "dropout": 0.0,
}
WHOLE = st.sampled_from((0, 1, 2, 3, -1, 10**9))
NUMBERS = st.sampled_from(
    (0, 1, 2, -1, 0.5, 1.2, 1.5, 1.9, 2.5, 1e-300, 1e300, math.nan, math.inf, -math.inf)
)
SMALL = st.sampled_from((1, 2, 3, 4, 16, 0, -1, -16))
JUNK = st.one_of(
    st.sampled_from(("", "x", "1.5", "none", "ア", "\0", [1], [], {"a": 1}, (), True, b"1", 1 + 2j)),
    st.none(),
)
WORDS = {
    "attention_normalizer": st.sampled_from(tuple(NORMALIZERS)),
    "alpha_tying": st.sampled_from(("none", "layer", "type", "model")),
    "alpha_schedule": st.sampled_from(("none", "linear", "cosine")),
    "alpha_schedule_then": st.sampled_from(("fixed", "learned")),
}


def sensible(name: str, default) -> st.SearchStrategy:
    return WORDS.get(name, WHOLE if isinstance(default, int) else NUMBERS)


OURS = {field.name: sensible(field.name, field.default) for field in fields(AlphaConfig)}
FLAGS = {
    **OURS,
    **{f"{kind}_{name}": values for kind in ATTENTION_TYPES for name, values in OURS.items()},
    **{name: SMALL for name in SIZES if name != "dropout"},
    "attention_backend": st.sampled_from(BACKENDS),
    "alpha_log_interval": WHOLE,
    "output_alpha": st.sampled_from((1, 1.5, 2, 0.5, math.nan)),
    "adaptive_softmax_cutoff": st.sampled_from(
        ("4,8", "[4]", "4", "8,4", "0", "-1", "99", "a", "4,", "print()", [4, 8])
    ),
    "encoder_normalize_before": st.booleans(),
    "decoder_normalize_before": st.booleans(),
    "share_decoder_input_output_embed": st.booleans(),
    "no_cross_attention": st.booleans(),
}
# By chance alone, four flags of sixty would hardly ever go together.
SCHEDULES = {
    "alpha_schedule": st.sampled_from(("linear", "cosine")),
    "alpha_schedule_updates": st.sampled_from((1, 100, 0)),
    "alpha_schedule_start": NUMBERS,
    "alpha_schedule_end": NUMBERS,
    "alpha_schedule_then": st.sampled_from(("fixed", "learned")),
}


@st.composite
def settings(draw, junk=JUNK):
    """Some settings by name; now and then one of the wrong type."""
    names = draw(st.lists(st.sampled_from(sorted(FLAGS)), max_size=4, unique=True))
    values = {name: draw(FLAGS[name]) for name in names}
    if draw(st.integers(0, 3)) == 0:
        values.update({name: draw(SCHEDULES[name]) for name in SCHEDULES})
    if junk is not None and values and draw(st.integers(0, 3)) == 0:
        values[draw(st.sampled_from(sorted(values)))] = draw(junk)
    return values


def run(args: Namespace, name: str) -> None:
    """Build the model as fairseq does from a config, and train it for a step."""
    ARCH_CONFIG_REGISTRY[name](args)
    model = ARCH_MODEL_REGISTRY[name].build_model(args, translation_task())
    if args.adaptive_softmax_cutoff is not None:
        return  # it has another loss
    model.set_num_updates(1)
    value = loss(model, batch())
    value.backward()
    assert torch.isfinite(value), args
    for kind, layers in model.alpha_values().items():
        assert all(1 <= alpha < math.inf for layer in layers for alpha in layer), (kind, layers)


def names_a_setting(message: str, values: dict) -> bool:
    """Whether it is said of a setting that was given, or of α."""
    given = "\n".join([*values, *(each.replace("_", "-") for each in values)])
    named = [word.strip("-,.;:") for word in message.split() if word.startswith("--") or "α" in word]
    return any(word in given or "α" in word for word in named)


def as_flags(values: dict) -> str:
    words = []
    for flag, value in values.items():
        if isinstance(value, bool):
            words += [f"--{flag.replace('_', '-')}"] * value
        else:
            words.append(f"--{flag.replace('_', '-')}={value}".replace(" ", ""))
    return " ".join(words)


SENSIBLE = [
    {},
    *({"attention_normalizer": name} for name in NORMALIZERS),
    {"fixed_alpha": 1.3, "decoder_self_alpha_init": 1.9, "alpha_log_interval": 3},
    {"alpha_schedule": "linear", "alpha_schedule_updates": 100, "alpha_schedule_then": "learned"},
    {
        "encoder_layers": 2,
        "decoder_attention_heads": 4,
        "encoder_embed_dim": 16,
        "attention_backend": "dense",
    },
]


@pytest.mark.parametrize("case", each_once(name=ARCHITECTURES, values=SENSIBLE))
def test_sensible_settings_run(case):
    name, values = case["name"], {**SIZES, **case["values"]}
    assert sentence(run, Namespace(no_progress_bar=True, **values), name) is None
    assert sentence(lambda: run(parse(as_flags(values), name), name)) is None


def test_settings_of_a_config():
    outcomes = Counter()

    @search(250)
    @hypothesis.given(settings(), st.sampled_from(ARCHITECTURES))
    def check(values, name):
        args = Namespace(**{**SIZES, "no_progress_bar": True, **values})
        message = sentence(run, args, name)
        outcomes["runs" if message is None else "refused"] += 1
        assert message is None or names_a_setting(message, values), (values, message)

    check()
    assert min(outcomes["runs"], outcomes["refused"]) > outcomes.total() / 5, outcomes


def test_flags_of_a_command_line():
    outcomes = Counter()

    @search(60)
    @hypothesis.given(settings(junk=None), st.sampled_from(ARCHITECTURES))
    def check(values, name):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            message = sentence(lambda: run(parse(as_flags({**SIZES, **values}), name), name))
        if message == "usage":
            message = said.getvalue().strip().split("\n")[-1]
        outcomes["runs" if message is None else "refused"] += 1
        assert message is None or names_a_setting(message, values), (values, message)

    check()
    assert min(outcomes["runs"], outcomes["refused"]) > outcomes.total() / 5, outcomes
