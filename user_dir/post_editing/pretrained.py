"""A pretrained BERT: a folder as Hugging Face lays it out, or a checkpoint of our masked language model."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from ..checkpoints import (
    fingerprints_of,
    load_checkpoint,
    model_name,
    model_settings,
    pieces_file,
    require_same,
    task_settings,
)
from ..corpora.corpus import read_dictionary
from ..corpora.wordpiece import FILES, SPECIAL, read_tokenizer, symbol_of
from ..errors import UserError
from ..files import ROOT, read_json
from ..models.layers import layers_of
from ..models.settings import filled

SIZES = {
    "embed_dim": "hidden_size",
    "ffn_embed_dim": "intermediate_size",
    "layers": "num_hidden_layers",
    "attention_heads": "num_attention_heads",
}
"""Our settings of an encoder → Hugging Face's."""
GROUP = "bert"  # a BERT's parameters, for fairseq's optimizer ``composite``; others are in "default"
PADDING = re.compile(r"madeupword\d+")  # symbols that fill a dictionary up to a multiple of 8
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


@dataclass(frozen=True)
class Bert:
    """A pretrained encoder."""

    path: str  # where it was read from, for error messages
    sizes: dict[str, int]  # of SIZES, and positions
    activation: str  # fairseq's name of it
    eps: float  # of its LayerNorms
    weights: dict[str, Tensor]  # by the names that the parameters have in our encoder
    rows: dict[str, int]  # symbol of a fairseq dictionary → row of the word embeddings

    def fit(self, args) -> None:
        """Limit the positions in the settings to the BERT's; UserError unless the other sizes agree."""
        theirs = {f"encoder_{name}": self.sizes[name] for name in SIZES} | {"activation_fn": self.activation}
        for name, value in theirs.items():
            if getattr(args, name) != value:
                flag = f"--{name.replace('_', '-')}"
                raise UserError(f"{flag} is {getattr(args, name)}, but {value} in the BERT {self.path}")
        for name in ("max_source_positions", "max_target_positions"):
            setattr(args, name, min(getattr(args, name) or 10**9, self.sizes["positions"]))

    def load_encoder(self, encoder: nn.Module, dictionary: Dictionary) -> None:
        """Load all weights of an encoder; word embeddings by the names of the tokens."""
        places = [place for place, symbol in enumerate(dictionary.symbols) if symbol in self.rows]
        others = [symbol for symbol in dictionary.symbols if symbol not in self.rows]
        missing = [symbol for symbol in others if not PADDING.fullmatch(symbol)]
        if missing:
            raise UserError(
                f"{len(missing):,} of the {len(dictionary):,} symbols of the dictionary are not in the "
                f"vocabulary of the BERT {self.path}, such as {missing[0]!r}; prepare the corpus with it"
            )
        rows = [self.rows[dictionary.symbols[place]] for place in places]
        words = encoder.embed_tokens.weight.detach().clone()
        words[places] = self._weight("embed_tokens.weight")[rows].to(words)
        _copy(words, encoder.embed_tokens.weight)
        positions = encoder.input_positions.positions.weight
        _copy(self._weight("input_positions.positions.weight")[: len(positions)], positions)
        for name in ("input_positions.segments", "layernorm_embedding"):
            self._load(name, encoder.get_submodule(name))
        self.load_layers(layers_of(encoder))

    def load_layers(self, layers: Iterable[nn.Module]) -> None:
        """Load self-attention, feed-forward network and their LayerNorms of each layer."""
        for number, layer in enumerate(layers):
            for name in _LAYER.values():
                self._load(f"layers.{number}.{name}", layer.get_submodule(name))

    def _load(self, prefix: str, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            _copy(self._weight(f"{prefix}.{name}"), parameter)

    def _weight(self, name: str) -> Tensor:
        if name not in self.weights:
            raise UserError(f"the BERT {self.path} lacks the weights for {name}; it is not a whole encoder")
        return self.weights[name]


def _copy(value: Tensor, parameter: Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(value)
    parameter.param_group = GROUP


def start_from(module: nn.Module, other: nn.Module) -> None:
    """Copy the parameters of another module, with their ``param_group``."""
    module.load_state_dict(other.state_dict())
    for own, theirs in zip(module.parameters(), other.parameters()):
        if hasattr(theirs, "param_group"):
            own.param_group = theirs.param_group


def start_bert(args) -> Bert | None:
    """Read the ``--bert`` of the settings and adapt the settings, see :meth:`Bert.fit`; None without one.

    It is a folder of Hugging Face's, or a checkpoint of ``adaptively_sparse_masked_lm``. Raises UserError if
    a file is missing, or not that of a BERT encoder.
    """
    bert = None
    if args.bert:
        path = Path(args.bert)
        bert = _read_folder(path) if path.is_dir() else _read_checkpoint(path)
        bert.fit(args)
    if args.layer_norm_eps is None:
        args.layer_norm_eps = 1e-12 if bert is None else bert.eps
    return bert


def _our_name(name: str) -> str | None:
    """Our name of a parameter of Hugging Face's BERT; None for one that an encoder does not have."""
    part, _, kind = name.removeprefix("bert.").rpartition(".")
    kind = {"gamma": "weight", "beta": "bias"}.get(kind, kind)
    if part in _EMBEDDINGS:
        return f"{_EMBEDDINGS[part]}.{kind}"
    layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", part)
    return f"layers.{layer[1]}.{_LAYER[layer[2]]}.{kind}" if layer and layer[2] in _LAYER else None


def _read_folder(folder: Path) -> Bert:
    from safetensors.torch import load_file

    path = folder / "config.json"
    config = read_json(path, "the settings of a BERT")
    kind, activation = config.get("model_type", "bert"), config.get("hidden_act", "gelu")
    if kind != "bert" or activation not in _ACTIVATIONS:
        told = f"model_type is {kind!r}, hidden_act {activation!r}"
        raise UserError(f"{path}: {told}; give a bert with one of {', '.join(_ACTIVATIONS)}")
    sizes = {size: config[name] for size, name in {**SIZES, "positions": "max_position_embeddings"}.items()}
    tokens = read_tokenizer({name: folder / name for name in FILES if (folder / name).is_file()}).tokens
    if (folder / "model.safetensors").is_file():
        theirs = load_file(folder / "model.safetensors")
    elif (folder / "pytorch_model.bin").is_file():
        theirs = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    else:
        raise UserError(f"{folder} has neither model.safetensors nor pytorch_model.bin")
    weights = {_our_name(name): value for name, value in theirs.items()}
    eps = float(config.get("layer_norm_eps", 1e-12))
    return Bert(str(folder), sizes, _ACTIVATIONS[activation], eps, weights, _rows(tokens))


def _rows(tokens: list[str]) -> dict[str, int]:
    """The row of the word embeddings for each symbol."""
    numbers = {token: row for row, token in enumerate(tokens)}
    rows = {symbol_of(token): row for token, row in numbers.items()}
    rows["</s>"] = rows["[SEP]"] = rows[SPECIAL["[SEP]"]]  # [SEP] also ends BERT's sequences
    for symbol in string.punctuation:  # BERT splits at punctuation, so it has seen "." but never "##."
        if symbol in rows and symbol in numbers:
            rows[symbol] = numbers[symbol]
    return rows


def _read_checkpoint(path: Path) -> Bert:
    state = load_checkpoint(path)
    name = model_name(state)
    if not name.startswith("adaptively_sparse_masked_lm"):
        raise UserError(f"{path} is of a {name}; a BERT is a folder, or an adaptively_sparse_masked_lm")
    weights = {key.removeprefix("encoder."): value for key, value in state["model"].items()}
    dictionary = path.with_name("dict.txt")
    if not dictionary.is_file():
        dictionary = ROOT / str(task_settings(state).get("data")) / "dict.txt"
    symbols = read_dictionary(dictionary.parent).symbols
    if "<mask>" not in symbols:  # fairseq's task adds it
        symbols = [*symbols, "<mask>"]
    rows = {symbol: row for row, symbol in enumerate(symbols)}
    vocabulary = fingerprints_of({"source": symbols}, {"source": dictionary}, pieces_file(dictionary.parent))
    require_same(state, path, vocabulary)
    settings = filled(name, model_settings(state))
    sizes = {size: getattr(settings, f"encoder_{size}") for size in SIZES}
    sizes["positions"] = settings.max_source_positions
    eps = 1e-12 if settings.layer_norm_eps is None else settings.layer_norm_eps
    return Bert(str(path), sizes, settings.activation_fn, eps, weights, rows)
