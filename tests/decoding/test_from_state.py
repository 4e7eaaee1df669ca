"""The weights of a checkpoint: those of the model that fairseq builds of it, or a reason."""

from __future__ import annotations

import argparse
import dataclasses
import json
from dataclasses import fields

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig
from helpers import SMALL, parse, translation_task

from user_dir.alpha_settings import ALPHA_FIELDS
from user_dir.attention import ATTENTION_TYPES
from user_dir.attention.normalizers import NORMALIZERS
from user_dir.attention.normalizers.alpha_entmax import AlphaEntmax
from user_dir.decoding.alphas import alphas_of
from user_dir.decoding.from_model import weights_of
from user_dir.decoding.from_state import (
    ARCHITECTURES,
    OFF,
    REQUIRED,
    UNUSED,
    Unknown,
    max_positions,
    weights_of_state,
)
from user_dir.models.adaptively_sparse_transformer import AdaptivelySparseTransformerModel

UPDATES = 30
MODEL = "adaptively_sparse_transformer"


def trained(flags: str = "", arch: str = MODEL) -> tuple:
    """A model, and what a checkpoint has of it."""
    args = parse(f"{SMALL} {flags}", arch)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, translation_task()).eval()
    model.set_num_updates(UPDATES)
    for parameter in model.parameters():  # biases and LayerNorms, too
        parameter.data.add_(torch.randn_like(parameter) / 10)
    return model, {"model": model.state_dict()}, {**vars(args), "_name": args.arch}


def read(state: dict, settings: dict):
    """The weights of a checkpoint, as a translator finds them."""
    arrays = {name: value.float().numpy() for name, value in state["model"].items()}
    alphas = alphas_of(state["model"], settings, UPDATES)
    return weights_of_state(arrays, settings, json.loads(json.dumps(alphas)))


def assert_equal(found, expected, where: str = "weights") -> None:
    if dataclasses.is_dataclass(expected):
        assert type(found) is type(expected), where
        for field in fields(expected):
            names = field.name, f"{where}.{field.name}"
            assert_equal(getattr(found, names[0]), getattr(expected, names[0]), names[1])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected)):
            assert_equal(one, other, f"{where}[{number}]")
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and np.array_equal(found, expected), where
    elif callable(expected):
        np.testing.assert_allclose(found(30), expected(30), rtol=0, atol=1e-5, err_msg=where)
    else:
        assert found == expected, where


PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"
KNOWN = (
    "",
    PRE_NORM,
    "--encoder-normalize-before --no-decoder-final-norm --share-all-embeddings",
    f"{PRE_NORM} --no-decoder-final-norm --encoder-learned-pos --share-decoder-input-output-embed",
    "--decoder-learned-pos --max-source-positions 33 --max-target-positions 44 --layernorm-embedding",
    "--no-token-positional-embeddings --no-scale-embedding --activation-fn gelu",
    "--decoder-embed-dim 24 --decoder-attention-heads 3 --encoder-layers 1 --decoder-output-dim 12",
    "--no-cross-attention --encoder-layerdrop 0.3 --decoder-layerdrop 0.2 --checkpoint-activations",
    "--fixed-alpha 1.3 --decoder-context-attention-normalizer sparsemax",
    "--alpha-tying layer --alpha-min 1.2 --alpha-max 3 --alpha-lr-multiplier 7",
    "--alpha-tying model",
    "--encoder-self-alpha-tying type --decoder-self-alpha-init 1.7",
    "--alpha-schedule cosine --alpha-schedule-updates 90",
    "--alpha-schedule linear --alpha-schedule-updates 90 --alpha-schedule-then learned",
    "--alpha-schedule linear --alpha-schedule-updates 20 --alpha-schedule-then learned",
    "--output-alpha 1 --attention-backend dense --int8 --dropout 0.3",
    "--length-scaling --decoder-embed-dim 24 --decoder-attention-heads 3 --output-alpha 1.5",
    "--attention-normalizer rela --encoder-self-attention-normalizer entmax --decoder-embed-dim 24",
)


@pytest.mark.parametrize("flags", KNOWN)
def test_weights_are_those_of_the_model(flags):
    model, state, settings = trained(flags)
    assert_equal(read(state, settings), weights_of(model))
    assert max_positions(settings) == model.max_positions()


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_every_architecture_is_known(arch):
    model, state, settings = trained(PRE_NORM, arch)
    assert_equal(read(state, settings), weights_of(model))
    assert set(ARCH_MODEL_INV_REGISTRY[MODEL]) == ARCHITECTURES


def test_half_precision_becomes_float32():
    model, state, settings = trained()
    half = {name: value.half() for name, value in state["model"].items()}
    model.load_state_dict(half)
    assert_equal(read({"model": half}, settings), weights_of(model))


REFUSED = (
    "--latent-alignment --latent-alignment-alpha 1.6",
    "--output-alpha 1.5 --output-alpha-start 1 --output-alpha-updates 9",
    "--activation-fn tanh",
    "--encoder-self-attention-normalizer fixed",
    "--adaptive-softmax-cutoff 9,15",
    "--quant-noise-pq 0.1",
    "--quant-noise-scalar 0.1",
    "--cross-self-attention",
)


@pytest.mark.parametrize("flags", REFUSED)
def test_what_is_not_known_is_refused(flags):
    _, state, settings = trained(flags)
    with pytest.raises(Unknown):
        read(state, settings)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_are_known_if_they_are_entmax_or_rela(name):
    _, state, settings = trained(f"--encoder-self-attention-normalizer {name}")
    if NORMALIZERS[name].forward is AlphaEntmax.forward or name == "rela":
        read(state, settings)
    else:
        with pytest.raises(Unknown):
            read(state, settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_name", "adaptively_sparse_transformer_lm"),
        ("_name", "transformer"),
        ("encoder_layers_to_keep", "0,1"),
        ("encoder_layers", 1),
        ("decoder_layers", 3),
        ("encoder_attention_heads", 3),
        ("encoder_attention_heads", True),
        ("decoder_ffn_embed_dim", "24"),
        ("max_target_positions", None),
        ("encoder", {"layers": 2}),
        ("share_all_embeddings", True),
        ("share_decoder_input_output_embed", True),
        ("base_layers", 1),
        ("output_alpha", 2.5),
        ("output_alpha", "1.5"),
    ],
)
def test_settings_that_do_not_fit_are_refused(name, value):
    _, state, settings = trained()
    read(state, settings)
    with pytest.raises(Unknown):
        weights_of_state(state, {**settings, name: value}, UPDATES)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_settings_that_are_missing_are_refused(name):
    _, state, settings = trained()
    del settings[name]
    with pytest.raises(Unknown, match=name):
        read(state, settings)


@pytest.mark.parametrize("version", [1.0, 2.0])
def test_parameters_that_do_not_fit_are_refused(version):
    _, state, settings = trained()
    parameters = state["model"]
    for name in parameters:
        others = {key: value for key, value in parameters.items() if key != name}
        for changed in (others, {**others, name: parameters[name][..., None]}):
            with pytest.raises(Unknown, match=name):
                read({"model": changed}, settings)
    for name, value in (("decoder.version", torch.tensor([version])), ("encoder.other", torch.ones(3))):
        with pytest.raises(Unknown):
            read({"model": {**parameters, name: value}}, settings)


def test_every_setting_of_a_model_is_considered():
    """So that a new one is not passed over."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    AdaptivelySparseTransformerModel.add_args(parser)
    flags = {action.dest for action in parser._actions} - {"help"}
    config = {field.name for field in fields(TransformerConfig) if not field.name.startswith("_")}
    of_alpha = {*ALPHA_FIELDS, *(f"{kind}_{name}" for kind in ATTENTION_TYPES for name in ALPHA_FIELDS)}
    known = REQUIRED | OFF | UNUSED | of_alpha | {"output_alpha", "no_decoder_final_norm", "length_scaling"}
    assert (flags | config) - known == set()
    assert not REQUIRED & OFF and not OFF & UNUSED and not REQUIRED & UNUSED


@pytest.mark.parametrize(
    "alphas",
    [
        {},
        {"encoder_self": [[1.5] * 4]},
        {"encoder_self": [[1.5] * 3] * 2},
        {"encoder_self": [[0.5] * 4] * 2},
        {"encoder_self": [[float("nan")] * 4] * 2},
        {"encoder_self": "rela"},
        {"encoder_self": [[["1.5"]] * 4] * 2},
        {"encoder_self": [{}] * 2},
    ],
)
def test_alphas_that_are_none_are_refused(alphas):
    _, state, settings = trained()
    whole = alphas_of(state["model"], settings, UPDATES)
    arrays = {name: value.numpy() for name, value in state["model"].items()}
    assert weights_of_state(arrays, settings, whole)
    with pytest.raises(Unknown):
        weights_of_state(arrays, settings, {**whole, **alphas} if alphas else alphas)
