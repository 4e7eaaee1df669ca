"""Conversion of the command line to the settings of each attention type."""

import argparse
from dataclasses import fields

import pytest
from fairseq import options
from fairseq.models import ARCH_CONFIG_REGISTRY
from helpers import SMALL, SMALL_LM, parse

from user_dir.alpha_settings import alpha_configs
from user_dir.attention import ATTENTION_TYPES, AlphaConfig
from user_dir.errors import UserError
from user_dir.models.adaptively_sparse_transformer import AdaptivelySparseTransformerModel

# a value for every field, none of them the default
VALUES = {
    "attention_normalizer": "sparsemax",
    "fixed_alpha": 1.25,
    "alpha_init": 1.3,
    "alpha_init_mean": 0.5,
    "alpha_init_std": 0.25,
    "alpha_min": 1.1,
    "alpha_max": 1.9,
    "alpha_tying": "layer",
    "alpha_freeze_updates": 7,
    "alpha_schedule": "cosine",
    "alpha_schedule_start": 1.2,
    "alpha_schedule_end": 1.7,
    "alpha_schedule_updates": 30,
    "alpha_schedule_then": "learned",
    "alpha_lr_multiplier": 5.0,
}
OWN = (  # settings of one attention type
    *("--encoder-self-alpha-init 1.2", "--decoder-context-alpha-tying none"),
    "--decoder-self-fixed-alpha 1.5",
)
SIDES = (("encoder", 0), ("encoder", -2), ("decoder", 0), ("decoder", -2))
# required by a schedule
COMPANIONS = {"alpha_schedule": "alpha_schedule_updates", "alpha_schedule_updates": "alpha_schedule"}


def flag(name, prefix=""):
    return "--" + (prefix + name).replace("_", "-")


def configs(flags):
    return alpha_configs(parse(flags))


def test_without_flags_all_is_default():
    assert configs("") == {attention_type: AlphaConfig() for attention_type in ATTENTION_TYPES}


@pytest.mark.parametrize("field", [field.name for field in fields(AlphaConfig)])
def test_each_flag_for_all_and_for_each_type(field):
    value = VALUES[field]
    needed = [name for name in (field, COMPANIONS.get(field)) if name]

    def given(prefix=""):
        return " ".join(f"{flag(name, prefix)} {VALUES[name]}" for name in needed)

    for config in configs(given()).values():
        assert getattr(config, field) == value and type(getattr(config, field)) is type(value)
    for chosen in ATTENTION_TYPES:
        for attention_type, config in configs(given(chosen + "_")).items():
            default = getattr(AlphaConfig(), field)
            assert getattr(config, field) == (value if attention_type == chosen else default)


def test_the_flag_of_a_type_overrides_the_general_flag():
    made = configs(
        "--alpha-init 1.2 --decoder-self-alpha-init 1.7 "
        "--alpha-tying layer --decoder-context-alpha-tying none"
    )
    assert [config.alpha_init for config in made.values()] == [1.2, 1.7, 1.2]
    assert [config.alpha_tying for config in made.values()] == ["layer", "layer", "none"]


def test_the_normalizer_of_a_type_overrides_general_settings_of_alpha():
    made = configs("--fixed-alpha 1.3 --encoder-self-attention-normalizer softmax")
    assert [config.constant for config in made.values()] == [1.0, 1.3, 1.3]
    made = configs(
        "--alpha-schedule linear --alpha-schedule-updates 5 --decoder-context-attention-normalizer sparsemax"
    )
    assert [config.constant for config in made.values()] == [None, None, 2.0]


def test_every_flag_has_help():
    parser = argparse.ArgumentParser()
    AdaptivelySparseTransformerModel.add_args(parser)
    text = parser.format_help()
    for field in fields(AlphaConfig):
        for prefix in ("", *(attention_type + "_" for attention_type in ATTENTION_TYPES)):
            assert flag(field.name, prefix) + " " in text
    assert "--alpha-log " in text and "--alpha-log-interval " in text
    assert all(action.help for action in parser._actions if "alpha" in action.dest)


def test_flags_that_are_not_given_have_no_value():
    # otherwise a flag's default would hide the general flag, or an architecture's default
    given = {name for name in vars(parse("")) if "alpha" in name or "normalizer" in name}
    assert given == set()


TRANSFORMER, EDITOR = "adaptively_sparse_transformer", "adaptively_sparse_post_editor"
LANGUAGE_MODEL = "adaptively_sparse_transformer_lm"
LATENT = "--latent-alignment"
REFUSED = {
    (TRANSFORMER, SMALL): {
        "--alpha-init 3": "--alpha-init 3",
        "--fixed-alpha 0.5": "--fixed-alpha must be from 1 to 1000, not 0.5",
        "--attention-normalizer relu": "'relu'",
        "--attention-normalizer rela --fixed-alpha 1.5": "requires --attention-normalizer entmax",
        "--decoder-self-alpha-init 2.5": "decoder_self: --alpha-init 2.5",
        "--alpha-log-interval 0": "--alpha-log-interval must be a positive integer, not 0",
        "--alpha-log-interval -3": "not -3",
        "--alpha-schedule-updates 9": "--alpha-schedule-updates 9 requires --alpha-schedule",
        "--alpha-schedule linear --alpha-schedule-updates 9 --alpha-init 1.2": "--alpha-init 1.2 cannot be "
        "combined with --alpha-schedule linear",
        **{f"--alpha-tying model {own}": "--alpha-tying model" for own in OWN},
        **{f"--{side}-attention-heads {heads}": f"--{side}-attention-heads must be" for side, heads in SIDES},
        "--encoder-attention-heads 3": "16 is not divisible by --encoder-attention-heads 3",
        "--decoder-attention-heads 5": "--decoder-embed-dim 16 is not divisible",
        "--encoder-xformers-att-config {}": "--encoder-xformers-att-config",
        f"{LATENT}-top-k 3": f"{LATENT}-top-k requires {LATENT}",
        f"{LATENT}-soft": f"{LATENT}-soft requires {LATENT}",
        f"{LATENT}-alpha 2": f"{LATENT}-alpha requires {LATENT}",
        f"{LATENT} {LATENT}-alpha 0.5": "must be a number of at least 1, not 0.5",
        f"{LATENT} {LATENT}-alpha nan": "must be a number of at least 1, not nan",
        f"{LATENT} {LATENT}-alpha inf": "must be a number of at least 1, not inf",
        f"{LATENT} {LATENT}-alpha 1": "with an alpha above 1",
        f"{LATENT} {LATENT}-top-k 0": "must be a positive integer, not 0",
        f"{LATENT} --adaptive-softmax-cutoff 5": "omit --adaptive-softmax-cutoff",
        f"{LATENT} --no-cross-attention": "omit --no-cross-attention",
        f"{LATENT} --attention-normalizer softmax": f"give {LATENT}-alpha 2",
        f"{LATENT} --fixed-alpha 1": "with an alpha above 1",
        f"{LATENT} --attention-normalizer rela": "with an alpha above 1",
        f"{LATENT} --output-alpha 1.5": "omit --output-alpha",
        f"{LATENT} --quant-noise-scalar 0.1": "omit --quant-noise-scalar",
    },
    (LANGUAGE_MODEL, SMALL_LM): {
        "--decoder-attention-heads 3": "divisible by --decoder-attention-heads 3",
        "--decoder-layers 0": "--decoder-layers must be a positive integer",
        "--character-embeddings": "not supported",
        "--adaptive-input": "--adaptive-input-cutoff",
        "--tie-adaptive-weights": "requires --adaptive-input",
        "--fixed-alpha 0.5": "--fixed-alpha",
        "--output-alpha 3": "--output-alpha must be from 1 to 2",
        "--output-alpha 1.5 --adaptive-softmax-cutoff 8": "--adaptive-softmax-cutoff",
    },
    (EDITOR, ""): {
        "--decoder-init zero": "unknown --decoder-init 'zero': choose from random and bert",
        "--context-init bert": "unknown --context-init 'bert': choose from random and self",
        "--new-piece-penalty -1": "--new-piece-penalty must be a number from 0 to 1000, not -1.0",
        "--layer-norm-eps nan": "--layer-norm-eps must be a number from 0 to 1, not nan",
        "--encoder-normalize-before": "--encoder-normalize-before would change BERT's layers; omit it",
        "--encoder-layers 3 --decoder-layers 2": "--encoder-layers 3 and --decoder-layers 2 must be equal",
    },
}
"""By architecture, with flags that are accepted: flags that are not, and what the error says."""


@pytest.mark.parametrize(
    ("arch", "given", "flags"), [(*start, flags) for start, table in REFUSED.items() for flags in table]
)
def test_flags_that_cannot_be_end_the_parsing(arch, given, flags):
    parse(given, arch)
    with pytest.raises(UserError) as caught:
        parse(f"{given} {flags}", arch)
    assert REFUSED[arch, given][flags] in str(caught.value)


def test_tying_over_the_model_suits_the_same_flag_of_a_type():
    configs("--alpha-tying model --decoder-self-alpha-tying model")


def test_all_stock_flags_exist():
    def names(arch):
        parser = options.get_training_parser()
        return set(vars(options.parse_args_and_arch(parser, ["no-data", "--arch", arch])))

    missing = names("transformer") - names("adaptively_sparse_transformer")
    assert missing == set()


def test_the_flag_of_a_type_voids_contradicting_general_flags():
    made = configs("--fixed-alpha 1.5 --encoder-self-alpha-init 1.3")
    assert made["encoder_self"].learned and made["encoder_self"].alpha_init == 1.3
    assert made["decoder_self"].constant == made["decoder_context"].constant == 1.5

    made = configs("--fixed-alpha 1.5 --encoder-self-attention-normalizer entmax")
    assert made["encoder_self"].learned

    made = configs("--attention-normalizer softmax --decoder-self-fixed-alpha 1.2")
    assert made["decoder_self"].constant == 1.2 and made["encoder_self"].constant == 1

    schedule = "--alpha-schedule linear --alpha-schedule-updates 9"
    made = configs(f"{schedule} --decoder-context-fixed-alpha 1.5")
    assert made["decoder_context"].constant == 1.5 and made["decoder_self"].scheduled
    made = configs("--fixed-alpha 1.5 --alpha-schedule-updates 9 --encoder-self-alpha-schedule cosine")
    assert made["encoder_self"].scheduled and made["decoder_self"].constant == 1.5


@pytest.mark.parametrize("cutoff", ("__import__('os')", "[1, abs]", "1000;2"))
def test_adaptive_softmax_cutoff_must_be_numbers_not_code(cutoff):
    """fairseq evaluates it, even from a checkpoint."""
    args = parse(SMALL)
    args.adaptive_softmax_cutoff = cutoff
    with pytest.raises(UserError, match="--adaptive-softmax-cutoff"):
        ARCH_CONFIG_REGISTRY[args.arch](args)
    args.adaptive_softmax_cutoff = "1000, 2000"
    ARCH_CONFIG_REGISTRY[args.arch](args)
