"""What AlphaConfig accepts and refuses."""

import math

import pytest

from user_dir.attention import AlphaConfig

SCHEDULE = {"alpha_schedule": "linear", "alpha_schedule_updates": 10}
NUMBERS = (
    "fixed_alpha", "alpha_init", "alpha_init_mean", "alpha_init_std", "alpha_min", "alpha_max",
    "alpha_schedule_start", "alpha_schedule_end", "alpha_lr_multiplier",
)  # fmt: skip
WHOLE_NUMBERS = ("alpha_freeze_updates", "alpha_schedule_updates")
WORDS = ("attention_normalizer", "alpha_tying", "alpha_schedule", "alpha_schedule_then")

# settings, and what the message must contain: fields, then values
REFUSED = [
    (
        {"attention_normalizer": "relu"},
        ["attention_normalizer", "relu", "entmax15", "sparsemax", "softmax"],
    ),
    ({"alpha_tying": "head"}, ["alpha_tying", "head", "none, layer, type, model"]),
    ({"alpha_schedule": "step"}, ["alpha_schedule", "step", "none, linear, cosine"]),
    ({**SCHEDULE, "alpha_schedule_then": "free"}, ["alpha_schedule_then", "free", "fixed, learned"]),
    ({"alpha_min": 0.9}, ["alpha_min", "0.9"]),
    ({"alpha_min": 1.5, "alpha_max": 1.5}, ["alpha_min", "alpha_max", "1.5"]),
    ({"alpha_min": 1.7, "alpha_max": 1.5}, ["alpha_min", "alpha_max", "1.7", "1.5"]),
    ({"alpha_max": math.inf}, ["alpha_max", "inf"]),
    ({"alpha_max": math.nan}, ["alpha_max", "nan"]),
    ({"alpha_min": math.nan}, ["alpha_min", "nan"]),
    ({"fixed_alpha": 0.5}, ["fixed_alpha", "0.5"]),
    ({"fixed_alpha": math.inf}, ["fixed_alpha", "inf"]),
    ({"fixed_alpha": math.nan}, ["fixed_alpha", "nan"]),
    ({"fixed_alpha": 1.5, "attention_normalizer": "softmax"}, ["fixed_alpha", "1.5", "softmax"]),
    ({"alpha_init": 1.0}, ["alpha_init", "1", "alpha_min", "fixed_alpha"]),
    ({"alpha_init": 2.0}, ["alpha_init", "2", "alpha_max"]),
    ({"alpha_init": 1.2, "alpha_min": 1.3}, ["alpha_init", "1.2", "1.3"]),
    ({"alpha_init": math.nan}, ["alpha_init", "nan"]),
    ({"alpha_init_std": -0.5}, ["alpha_init_std", "-0.5"]),
    ({"alpha_init_std": math.nan}, ["alpha_init_std", "nan"]),
    ({"alpha_init_std": math.inf}, ["alpha_init_std", "inf"]),
    ({"alpha_init_mean": math.nan}, ["alpha_init_mean", "nan"]),
    ({"alpha_lr_multiplier": 0.0}, ["alpha_lr_multiplier", "0"]),
    ({"alpha_lr_multiplier": -2.0}, ["alpha_lr_multiplier", "-2"]),
    ({"alpha_lr_multiplier": math.nan}, ["alpha_lr_multiplier", "nan"]),
    ({"alpha_lr_multiplier": math.inf}, ["alpha_lr_multiplier", "inf"]),
    ({"alpha_freeze_updates": -1}, ["alpha_freeze_updates", "-1"]),
    ({"alpha_schedule": "cosine"}, ["alpha_schedule", "cosine", "alpha_schedule_updates", "0"]),
    ({**SCHEDULE, "alpha_schedule_updates": -5}, ["alpha_schedule_updates", "-5"]),
    ({**SCHEDULE, "alpha_schedule_start": 0.9}, ["alpha_schedule_start", "0.9"]),
    ({**SCHEDULE, "alpha_schedule_end": math.nan}, ["alpha_schedule_end", "nan"]),
    (
        {**SCHEDULE, "alpha_schedule_end": 2.0, "alpha_schedule_then": "learned"},
        ["alpha_schedule_end", "2"],
    ),
    ({**SCHEDULE, "fixed_alpha": 1.5}, ["alpha_schedule", "linear", "fixed_alpha"]),
    ({**SCHEDULE, "attention_normalizer": "entmax15"}, ["alpha_schedule", "attention_normalizer"]),
]


@pytest.mark.parametrize("settings, named", REFUSED, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_refused_with_field_and_value(settings, named):
    with pytest.raises(ValueError) as caught:
        AlphaConfig(**settings)
    for part in named:
        assert part in str(caught.value)


def wrong_types():
    """As read from YAML: a quoted number, yes/no, a list, a mapping, nothing after the colon."""
    for names, kind, values in (
        (NUMBERS, "a number", ("1.5", True, [1.5], {"value": 1.5})),
        (WHOLE_NUMBERS, "an integer", ("5", False, 2.5, [3], None)),
        (WORDS, "a string", (1.5, True, ["layer"], None)),
    ):
        for name in names:
            for value in values:
                yield name, value, kind


@pytest.mark.parametrize("name, value, kind", wrong_types())
def test_wrong_type_is_refused(name, value, kind):
    with pytest.raises(ValueError) as caught:
        AlphaConfig(**{name: value})
    assert str(caught.value) == f"{name} must be {kind}, not {value!r}"


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in ("fixed_alpha", "alpha_init")])
def test_only_optional_numbers_may_be_missing(name):
    with pytest.raises(ValueError, match="must be a number, not None"):
        AlphaConfig(**{name: None})
    AlphaConfig(fixed_alpha=None, alpha_init=None)


@pytest.mark.parametrize(
    "settings",
    [
        {"fixed_alpha": 1.0},
        {"fixed_alpha": 2.5},
        {"fixed_alpha": 2},  # as YAML reads a number without a decimal point
        {"alpha_min": 1.01, "alpha_max": 4.0},
        {"alpha_init": 1.999},
        {"alpha_init_std": 0.0},
        {**SCHEDULE, "alpha_schedule_start": 1.0, "alpha_schedule_end": 2.0},
        {
            **SCHEDULE,
            "alpha_schedule_start": 2.0,
            "alpha_schedule_end": 1.2,
            "alpha_schedule_then": "learned",
        },
    ],
    ids=str,
)
def test_accepted(settings):
    config = AlphaConfig(**settings)
    for name, value in settings.items():
        assert getattr(config, name) == value


@pytest.mark.parametrize(
    "settings, constant, scheduled, learned",
    [
        ({}, None, False, True),
        ({"attention_normalizer": "softmax"}, 1.0, False, False),
        ({"attention_normalizer": "entmax15"}, 1.5, False, False),
        ({"attention_normalizer": "sparsemax"}, 2.0, False, False),
        ({"fixed_alpha": 1.25}, 1.25, False, False),
        (SCHEDULE, None, True, False),
        ({**SCHEDULE, "alpha_schedule_then": "learned"}, None, True, True),
    ],
    ids=str,
)
def test_kinds_of_alpha(settings, constant, scheduled, learned):
    config = AlphaConfig(**settings)
    assert (config.constant, config.scheduled, config.learned) == (constant, scheduled, learned)
