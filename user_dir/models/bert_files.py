"""Reads a BERT: a folder as Hugging Face lays it out, or a checkpoint of our masked language model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoints import load_checkpoint, model_name, model_settings, task_settings
from ..corpora.binarised import reading_dictionary
from ..corpora.corpus import ROOT
from ..corpora.wordpiece import SPECIAL, read_vocabulary, symbol_of
from ..errors import UserError, one_line
from ..fingerprints import fingerprints_of, pieces_file, require_same
from ..io import parse_json, read_text, shown, unchanged
from .bert_weights import SIZES, Bert

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# Hugging Face's name → ours, for the parts of a name before weight or bias.
_EMBEDDINGS = {
    "embeddings.word_embeddings": "embed_tokens",
    "embeddings.position_embeddings": "input_positions.positions",
    "embeddings.token_type_embeddings": "input_positions.segments",
    "embeddings.LayerNorm": "layernorm_embedding",
}
_LAYER = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_accurate", "relu": "relu"}
_CONFIG = {
    "hidden_size": "embed_dim",
    "intermediate_size": "ffn_embed_dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "attention_heads",
    "max_position_embeddings": "positions",
}


def read_bert(path: str) -> Bert:
    """Read a folder of Hugging Face's, or a checkpoint of ``adaptively_sparse_masked_lm``.

    Raises:
        UserError: a file is missing, corrupt, or not that of a BERT encoder.
    """
    place = Path(path)
    if place.is_dir():
        return _read_folder(place)
    if place.is_file():
        return _read_checkpoint(place)
    raise UserError(f"--bert {path}: there is neither such a folder nor such a checkpoint")


def our_name(name: str) -> str | None:
    """Our name of a parameter of Hugging Face's BERT; None for one that an encoder does not have."""
    name = name.removeprefix("bert.")
    part, _, kind = name.rpartition(".")
    kind = {"gamma": "weight", "beta": "bias"}.get(kind, kind)
    if part in _EMBEDDINGS:
        return f"{_EMBEDDINGS[part]}.{kind}"
    found = re.fullmatch(r"encoder\.layer\.(\d{1,4})\.(.+)", part)
    return f"layers.{found[1]}.{_LAYER[found[2]]}.{kind}" if found and found[2] in _LAYER else None


def _read_folder(folder: Path) -> Bert:
    config = _read_config(folder / "config.json")
    sizes = {ours: config[theirs] for theirs, ours in _CONFIG.items()}
    tokens = read_vocabulary(folder / "vocab.txt")
    weights = _read_weights(folder)
    rows = {symbol_of(token): row for row, token in enumerate(tokens)}
    rows["</s>"] = rows[SPECIAL["[SEP]"]]  # which ends BERT's sequences, too
    activation = _ACTIVATIONS[config.get("hidden_act", "gelu")]
    return Bert(str(folder), sizes, activation, float(config.get("layer_norm_eps", 1e-12)), weights, rows)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = parse_json(read_text(path, "the BERT's settings"))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {one_line(error)}") from None
    if not isinstance(config, dict) or config.get("model_type") != "bert":
        kind = config.get("model_type") if isinstance(config, dict) else config
        raise UserError(f"{path}: model_type is {shown(kind)}, but only a bert can be loaded")
    for key in _CONFIG:
        if type(config.get(key)) is not int or config[key] < 1:
            raise UserError(f"{path}: {key} is {shown(config.get(key))}, but must be a positive integer")
    if config.get("type_vocab_size", 2) != 2:
        raise UserError(f"{path}: type_vocab_size is {shown(config['type_vocab_size'])}, but two are needed")
    if config.get("hidden_act", "gelu") not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UserError(f"{path}: hidden_act is {shown(config['hidden_act'])}, but must be one of {known}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(f"{path}: position_embedding_type is {shown(config['position_embedding_type'])}")
    if not isinstance(config.get("layer_norm_eps", 1e-12), (int, float)):
        raise UserError(f"{path}: layer_norm_eps is {shown(config['layer_norm_eps'])}, but must be a number")
    return config


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights that an encoder has, by our names."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"{folder} has neither {' nor '.join(WEIGHTS)}")
    with unchanged(path):
        try:
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                weights = load_file(path)
            else:
                weights = torch.load(path, map_location="cpu", weights_only=True)
        except ImportError:
            raise UserError(f"{path} requires: pip install safetensors") from None
        except Exception as error:  # a corrupt file can raise any exception
            raise UserError(f"{path} cannot be read as weights: {one_line(error)[:200]}") from None
        if not isinstance(weights, dict) or not all(isinstance(each, Tensor) for each in weights.values()):
            raise UserError(f"{path} does not hold a model's weights")
        # Copied, because safetensors maps the file into memory.
        named = ((our_name(str(name)), value) for name, value in weights.items())
        return {name: value.clone() for name, value in named if name is not None}


def _read_checkpoint(path: Path) -> Bert:
    state = load_checkpoint(path)
    name, settings = model_name(state), model_settings(state)
    if not name.startswith("adaptively_sparse_masked_lm"):
        raise UserError(f"{path} is of a {name}; a BERT is a folder, or an adaptively_sparse_masked_lm")
    inner = "encoder."
    weights = {
        key.removeprefix(inner): value for key, value in state["model"].items() if key.startswith(inner)
    }
    dictionary = path.with_name("dict.txt")
    if not dictionary.is_file():
        dictionary = ROOT / str(task_settings(state).get("data")) / "dict.txt"
    with reading_dictionary(dictionary):
        from fairseq.data import Dictionary

        symbols = Dictionary.load(str(dictionary))
    rows = {symbol: row for row, symbol in enumerate(symbols.symbols)}
    symbols.add_symbol("<mask>")  # as fairseq's task does
    pieces = pieces_file(dictionary.parent)
    require_same(state, path, fingerprints_of({"source": symbols}, {"source": dictionary}, pieces))
    sizes = {size: settings.get(f"encoder_{size}") for size in SIZES}
    sizes["positions"] = settings.get("max_source_positions")
    eps, activation = settings.get("layer_norm_eps"), settings.get("activation_fn")
    if not all(type(each) is int for each in sizes.values()) or not isinstance(eps, float):
        raise UserError(f"{path} does not tell the sizes of its model")
    return Bert(str(path), sizes, activation, eps, weights, rows)
