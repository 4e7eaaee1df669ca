"""Reads a BERT: a folder as Hugging Face lays it out, or a checkpoint of our masked language model."""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any, Literal

from fairseq import utils
from msgspec import UNSET, Struct, UnsetType
from torch import Tensor

from ..checkout import ROOT
from ..checkpoints import (
    fingerprints_of,
    load_checkpoint,
    model_name,
    model_settings,
    pieces_file,
    require_same,
    task_settings,
)
from ..corpora.bert_tokenizer import OR_ANOTHER, SPECIAL, files_of, read_tokenizer, symbol_of
from ..corpora.binarised import load_dictionary
from ..errors import UserError
from ..schema import number, pattern, read_object, whole
from .bert_weights import SIZES, Bert, rules_of
from .hugging_face_weights import check_weights, read_weights

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
_MULTIPLES = (1, 8, 16, 32, 64, 128)  # to which tables of embeddings are filled up
_CONFIG = {
    "hidden_size": "embed_dim",
    "intermediate_size": "ffn_embed_dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "attention_heads",
    "max_position_embeddings": "positions",
}


class _Settings(Struct):
    hidden_size: whole(1, 10**6)
    intermediate_size: whole(1, 10**6)
    num_hidden_layers: whole(1, 10**6)
    num_attention_heads: whole(1, 10**6)
    max_position_embeddings: whole(1, 10**6)
    model_type: Literal["bert"] | UnsetType = UNSET  # folders of before 2020 have none
    architectures: list[pattern("Bert.*", "the name of a BERT")] | None = None
    vocab_size: whole(1, 10**8) | UnsetType = UNSET
    type_vocab_size: Literal[2] | UnsetType = UNSET  # as post-editing needs
    hidden_act: Literal[tuple(_ACTIVATIONS)] | UnsetType = UNSET
    position_embedding_type: Literal["absolute"] | UnsetType = UNSET
    layer_norm_eps: number(1e-30, 1) | UnsetType = UNSET


def start_bert(args, task) -> Bert | None:
    """Read the ``--bert`` of ``args`` and adapt them to it, see :meth:`.Bert.fit`; None without the flag.

    Raises:
        UserError: it cannot be read, or fits neither the flags nor the pieces of the task's data.
    """
    if not args.bert:
        return None
    bert = read_bert(args.bert)
    bert.fit(args)
    folder = getattr(getattr(task, "cfg", None), "data", None)
    if isinstance(folder, str) and folder:
        bert.require_rules(pieces_file(Path(utils.split_paths(folder)[0])))
    return bert


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
    tokenizer = read_tokenizer(files_of(folder))
    weights = {}
    for name, value in read_weights(folder).items():
        ours = our_name(name)
        if ours is not None:
            weights[ours] = value
    check_weights(folder, weights)
    _check_sizes(folder, config, weights)
    _check_vocabulary(folder, len(tokenizer.tokens), weights)
    activation = _ACTIVATIONS[config.get("hidden_act", "gelu")]
    eps = float(config.get("layer_norm_eps", 1e-12))
    return Bert(str(folder), sizes, activation, eps, weights, _rows(tokenizer.tokens), tokenizer.rules)


def _rows(tokens: list[str]) -> dict[str, int]:
    """The row of the word embeddings for each symbol."""
    numbers = {token: row for row, token in enumerate(tokens)}
    rows = {symbol_of(token): row for token, row in numbers.items()}
    rows["</s>"] = rows[SPECIAL["[SEP]"]]  # which ends BERT's sequences, too
    for symbol in string.punctuation:  # BERT splits there, so that it has never seen "##." but "."
        if symbol in rows and symbol in numbers:
            rows[symbol] = numbers[symbol]
    return rows


def _check_vocabulary(folder: Path, tokens: int, weights: dict[str, Tensor]) -> None:
    """Raise UserError unless there is an embedding for each token, and but a few that fill up a table."""
    rows = len(weights["embed_tokens.weight"]) if "embed_tokens.weight" in weights else tokens
    if rows - tokens not in {-tokens % multiple for multiple in _MULTIPLES}:
        raise UserError(
            f"{folder}: its tokenizer has {tokens:,} tokens, but its model {rows:,} word embeddings; get the "
            "tokenizer of this model"
        )


def _read_config(path: Path) -> dict[str, Any]:
    config = read_object(path, "the settings of a BERT", _Settings, f"download it again, {OR_ANOTHER}")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise UserError(
            f"{path}: hidden_size {config['hidden_size']} is not divisible by num_attention_heads "
            f"{config['num_attention_heads']}"
        )
    return config


def _check_sizes(folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Raise UserError unless the weights have the sizes of the settings; missing ones are found later."""
    path = folder / "config.json"
    layers = {int(name.split(".")[1]) for name in weights if name.startswith("layers.")}
    if layers != set(range(config["num_hidden_layers"])):
        raise UserError(
            f"{path}: num_hidden_layers is {config['num_hidden_layers']}, but the weights have "
            f"{len(layers)} layers; do they belong together?"
        )
    for key, name, dimension in (
        ("vocab_size", "embed_tokens.weight", 0),
        ("hidden_size", "embed_tokens.weight", 1),
        ("max_position_embeddings", "input_positions.positions.weight", 0),
        ("type_vocab_size", "input_positions.segments.weight", 0),
        ("intermediate_size", "layers.0.fc1.weight", 0),
    ):
        shape = tuple(weights[name].shape) if name in weights else None
        if shape is not None and key in config and (len(shape) != 2 or shape[dimension] != config[key]):
            raise UserError(
                f"{path}: {key} is {config[key]}, but the weights for {name} have the shape {shape}; do they "
                "belong together?"
            )


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
    symbols = load_dictionary(dictionary).symbols
    rows = {symbol: row for row, symbol in enumerate(symbols)}
    if "<mask>" not in rows:  # fairseq's task adds it
        symbols = [*symbols, "<mask>"]
    pieces = pieces_file(dictionary.parent)
    rules = rules_of(pieces)
    require_same(state, path, fingerprints_of({"source": symbols}, {"source": dictionary}, pieces))
    sizes = {size: settings.get(f"encoder_{size}") for size in SIZES}
    sizes["positions"] = settings.get("max_source_positions")
    eps, activation = settings.get("layer_norm_eps"), settings.get("activation_fn")
    if not all(type(each) is int for each in sizes.values()) or not isinstance(eps, float):
        raise UserError(f"{path} does not tell the sizes of its model")
    return Bert(str(path), sizes, activation, eps, weights, rows, rules)
