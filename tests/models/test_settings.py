"""One dataclass of settings per model: flags, sizes, types, and the settings of α by attention type."""

import argparse
from dataclasses import fields

import pytest
import torch
from fairseq import models
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from helpers import build, build_language_model, parse, translation_task
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from user_dir.attention import ATTENTION_TYPES, AlphaConfig
from user_dir.errors import UserError
from user_dir.models.settings import alpha_configs, as_namespace

OURS = "adaptively_sparse_transformer"
EDITOR, MASKED_LM = "adaptively_sparse_post_editor", "adaptively_sparse_masked_lm"
VALUES = {  # one for every field, none of them the default
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
# required by a schedule
COMPANIONS = {"alpha_schedule": "alpha_schedule_updates", "alpha_schedule_updates": "alpha_schedule"}


def settings(flags="", arch=OURS):
    """All settings of a model, as fairseq makes them of its flags where it builds the model."""
    return as_namespace(MODEL_DATACLASS_REGISTRY[arch].from_namespace(parse(flags, arch)))


def configs(flags):
    return alpha_configs(settings(flags))


def flag(name, prefix=""):
    return "--" + (prefix + name).replace("_", "-")


def test_without_flags_all_is_the_paper_s():
    assert configs("") == {attention_type: AlphaConfig() for attention_type in ATTENTION_TYPES}


@pytest.mark.parametrize("field", [field.name for field in fields(AlphaConfig)])
def test_each_flag_for_all_and_for_each_type(field):
    needed = [name for name in (field, COMPANIONS.get(field)) if name]

    def flags(prefix=""):
        return " ".join(f"{flag(name, prefix)} {VALUES[name]}" for name in needed)

    for config in configs(flags()).values():
        assert getattr(config, field) == VALUES[field]
    chosen = ATTENTION_TYPES[len(field) % 3]
    for attention_type, config in configs(flags(chosen + "_")).items():
        default = getattr(AlphaConfig(), field)
        assert getattr(config, field) == (VALUES[field] if attention_type == chosen else default)


def test_the_flag_of_a_type_voids_contradicting_general_flags():
    made = configs("--fixed-alpha 1.5 --encoder-self-alpha-init 1.3")
    assert made["encoder_self"].learned and made["encoder_self"].alpha_init == 1.3
    assert made["decoder_self"].constant == made["decoder_context"].constant == 1.5
    made = configs("--fixed-alpha 1.5 --encoder-self-attention-normalizer entmax")
    assert made["encoder_self"].learned
    made = configs("--attention-normalizer softmax --decoder-self-fixed-alpha 1.2")
    assert made["decoder_self"].constant == 1.2 and made["encoder_self"].constant == 1
    made = configs("--alpha-schedule linear --alpha-schedule-updates 9 --decoder-context-fixed-alpha 1.5")
    assert made["decoder_context"].constant == 1.5 and made["decoder_self"].scheduled


@pytest.mark.parametrize("size", ("_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big"))
@pytest.mark.parametrize("flags", ("", "--encoder-layers 3 --decoder-attention-heads 2 --dropout 0.2"))
def test_sizes_of_fairseq_s_names_are_fairseq_s(size, flags):
    stock = vars(parse(flags, "transformer" + size))
    ours = vars(build_args(flags, OURS + size))
    shared = stock.keys() & ours.keys() - {"arch"}
    assert len(shared) > 40 and {name: ours[name] for name in shared} == {n: stock[n] for n in shared}


def build_args(flags, arch):
    """What the model is built with: also the widths that follow from others."""
    from user_dir.models.transformer import fill_in

    args = settings(flags, arch)
    fill_in(args)
    return args


BASE, TINY, BERT = (512, 2048, 6, 8), (128, 256, 4, 4), (768, 3072, 12, 12)
SIZES = {
    OURS: BASE,
    f"{OURS}_tiny": TINY,
    f"{OURS}_small": (256, 1024, 4, 4),
    f"{OURS}_lm": BASE,
    f"{OURS}_lm_tiny": TINY,
    EDITOR: BERT,
    f"{EDITOR}_base": BERT,
    f"{EDITOR}_tiny": (128, 512, 4, 4),
    MASKED_LM: BERT,
    f"{MASKED_LM}_tiny": (128, 512, 4, 4),
}


@pytest.mark.parametrize("arch", SIZES)
def test_sizes(arch):
    model = settings("--task language_modeling" if f"{OURS}_lm" in arch else "", arch)
    names = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
    side = "decoder" if f"{OURS}_lm" in arch else "encoder"
    assert tuple(getattr(model, f"{side}_{name}") for name in names) == SIZES[arch]
    assert (model.activation_fn == "gelu") == (arch.startswith((EDITOR, MASKED_LM)))


def test_the_paper_s_model_is_base_with_pre_norm():
    model = settings()
    assert model.encoder_normalize_before and model.decoder_normalize_before
    flagged = settings("--encoder-normalize-before")  # a flag never turns off what a size turns on
    assert flagged.encoder_normalize_before


def test_the_decoder_is_as_wide_as_the_encoder_unless_it_is_said():
    args = build_args("--encoder-embed-dim 64 --encoder-ffn-embed-dim 128", OURS + "_tiny")
    assert (args.decoder_embed_dim, args.decoder_ffn_embed_dim, args.decoder_output_dim) == (64, 128, 64)
    args = build_args("--encoder-embed-dim 48 --decoder-embed-dim 96", OURS + "_tiny")
    assert (args.encoder_embed_dim, args.decoder_embed_dim, args.decoder_input_dim) == (48, 96, 96)


def test_a_config_and_flags_build_the_same_model():
    node = OmegaConf.create(
        {
            "_name": OURS + "_tiny",
            "encoder_layers": 2,
            "encoder_embed_dim": 16,
            "decoder_self_fixed_alpha": 1.5,
            "share_decoder_input_output_embed": "yes",
        }
    )
    flags = "--encoder-layers 2 --encoder-embed-dim 16 --decoder-self-fixed-alpha 1.5"
    args = parse(f"{flags} --share-decoder-input-output-embed", OURS + "_tiny")
    states = []
    for config in (node, args):
        torch.manual_seed(3)
        states.append(models.build_model(config, translation_task()).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share_all_embeddings", "maybe"),
        ("encoder_layers", 1.5),
        ("dropout", "much"),
        ("alpha_init", [1]),
        ("fixed_alpah", 1.5),
    ],
)
def test_settings_of_another_type_or_name_are_refused(name, value):
    with pytest.raises(OmegaConfBaseException, match=name):
        models.build_model(OmegaConf.create({"_name": OURS + "_tiny", name: value}), translation_task())


LATENT = "--latent-alignment"
REFUSED = {
    "--alpha-init 3": "alpha_init must lie between",
    "--fixed-alpha 0.5": "fixed_alpha must be from 1 to 1000, not 0.5",
    "--attention-normalizer relu": "'relu'",
    "--decoder-self-alpha-init 2.5": "decoder_self: alpha_init must lie",
    "--alpha-tying model --decoder-self-fixed-alpha 1.5": "--alpha-tying model",
    "--encoder-attention-heads 3": "--encoder-embed-dim is 16 and --encoder-attention-heads 3",
    "--attention-backend fastest": "'fastest'",
    "--output-alpha 3": "must be from 1 to 2",
    "--output-alpha 1.5 --adaptive-softmax-cutoff 8": "--adaptive-softmax-cutoff",
    f"{LATENT} {LATENT}-alpha 1": "needs an α above 1",
    f"{LATENT} {LATENT}-top-k 0": "must be at least 1, not 0",
    f"{LATENT} --attention-normalizer softmax": "needs an α above 1",
    f"{LATENT} {LATENT}-alpha 2 --no-cross-attention": "cannot be combined",
    f"{LATENT} {LATENT}-alpha 2 --quant-noise-scalar 0.1": "--quant-noise-scalar",
    f"{LATENT} {LATENT}-alpha 2 --output-alpha-start 1.5 --output-alpha-updates 9": "--output-alpha",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_settings_that_contradict_each_other_are_refused(flags):
    with pytest.raises(UserError) as caught:
        build(flags)
    assert REFUSED[flags] in str(caught.value)


@pytest.mark.parametrize("flags", ("--decoder-self-fixed-alpha 0.5", "--output-alpha 3"))
def test_settings_of_a_language_model(flags):
    build_language_model()
    with pytest.raises(UserError):
        build_language_model(flags)


def test_all_stock_flags_exist():
    def names(arch):
        parser = argparse.ArgumentParser()
        ARCH_MODEL_REGISTRY[arch].add_args(parser)
        return {action.dest for action in parser._actions if "xformers" not in action.dest}

    assert names("transformer") - names(OURS) <= {"char_inputs", "export"}
