"""The weights of a BERT under our parameters' names, and how they are put into our layers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from ..corpora.bert_tokenizer import KEYS, TOKENIZER, VOCABULARY, Rules
from ..corpora.wordpiece import WordPieces
from ..errors import UserError
from .sides import layers_of

SIZES = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
GROUP = "bert"  # of its parameters, for fairseq's optimizer composite; new ones are of "default"
PADDING = re.compile(r"madeupword\d+")  # symbols that fill a dictionary up to a multiple of 8
_PROJECTIONS = tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
_SHARED = (*_PROJECTIONS, "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm")


def start_from(module: nn.Module, other: nn.Module) -> None:
    """Copy the parameters of another module, and what says that they are a BERT's."""
    module.load_state_dict(other.state_dict())
    for own, theirs in zip(module.parameters(), other.parameters()):
        if hasattr(theirs, "param_group"):
            own.param_group = theirs.param_group


def rules_of(pieces: Path | None) -> Rules | None:
    """What the WordPiece tokenizer of a corpus, a file, does to text before; None for other pieces."""
    if pieces is None or pieces.name not in (VOCABULARY, TOKENIZER):
        return None
    return WordPieces(pieces).rules or Rules(False, False, False)


@dataclass(frozen=True)
class Bert:
    """A pretrained encoder.

    Attributes:
        path: where it was read from, for error messages.
        sizes: of :data:`SIZES`, and ``positions``.
        activation: fairseq's name of the activation function.
        eps: ε of its LayerNorms.
        weights: by the names that the parameters have in our encoder.
        rows: symbol of a fairseq dictionary → row of the word embeddings.
        rules: what it does to text before WordPiece; None if that is not known.
    """

    path: str
    sizes: dict[str, int]
    activation: str
    eps: float
    weights: dict[str, Tensor]
    rows: dict[str, int]
    rules: Rules | None = None

    def require_rules(self, pieces: Path | None) -> None:
        """Raise UserError if the tokenizer of a corpus, a file, treats text unlike that of the BERT."""
        theirs = rules_of(pieces)
        if self.rules is None or theirs is None:
            return
        for key, (ours, done) in KEYS.items():
            if getattr(theirs, ours) != getattr(self.rules, ours):
                no, yes = ("not ", "") if getattr(self.rules, ours) else ("", "not ")
                raise UserError(
                    f"{key}: with {pieces}, text is {no}{done}, but the BERT {self.path} has only seen text "
                    f"that is {yes}{done}; prepare the corpus with the files of its tokenizer"
                )

    def fit(self, args) -> None:
        """Take over ε and the number of positions, where the flags allow more.

        Raises:
            UserError: a size or the activation function given by the flags is another than the BERT's.
        """
        for size in SIZES:
            given = getattr(args, f"encoder_{size}")
            if given != self.sizes[size]:
                flag = f"--encoder-{size.replace('_', '-')}"
                raise UserError(
                    f"{flag} is {given}, but the BERT {self.path} has {self.sizes[size]}; "
                    f"give {flag} {self.sizes[size]}, or another --arch"
                )
        if args.activation_fn != self.activation:
            raise UserError(
                f"--activation-fn is {args.activation_fn}, but that of the BERT {self.path} is "
                f"{self.activation}; give --activation-fn {self.activation}"
            )
        if args.layer_norm_eps is None:
            args.layer_norm_eps = self.eps
        for side in ("source", "target"):
            name = f"max_{side}_positions"
            setattr(args, name, min(getattr(args, name, None) or 10**9, self.sizes["positions"]))

    def load_encoder(self, encoder: nn.Module, dictionary: Dictionary) -> None:
        """Load all weights of an encoder; raises UserError as :meth:`load_embeddings`."""
        self.load_embeddings(encoder, dictionary)
        self.load_layers(layers_of(encoder))

    def load_embeddings(self, encoder: nn.Module, dictionary: Dictionary) -> None:
        """Load word embeddings by the names of the tokens, positions, segments and their LayerNorm.

        Raises:
            UserError: the dictionary has symbols that the BERT's vocabulary lacks.
        """
        places, rows, missing = [], [], []
        for place, symbol in enumerate(dictionary.symbols):
            row = self.rows.get(symbol, self.rows.get(f"▁{symbol}") if symbol == "[SEP]" else None)
            if row is not None:
                places.append(place)
                rows.append(row)
            elif not PADDING.fullmatch(symbol):
                missing.append(symbol)
        if missing:
            raise UserError(
                f"{len(missing):,} of the {len(dictionary):,} symbols of the dictionary are not in the "
                f"vocabulary of the BERT {self.path}, such as {missing[0]!r}; prepare the corpus with it"
            )
        words = self._weight("embed_tokens.weight")
        weight = encoder.embed_tokens.weight
        self._require_shape("embed_tokens.weight", words, (len(words), weight.size(1)))
        with torch.no_grad():
            weight[places] = words[rows].to(weight)
        weight.param_group = GROUP
        positions = encoder.input_positions.positions.weight
        theirs = self._weight("input_positions.positions.weight")[: len(positions)]
        self._copy("input_positions.positions.weight", theirs, positions)
        self._load("input_positions.segments", encoder.input_positions.segments)
        self._load("layernorm_embedding", encoder.layernorm_embedding)

    def load_layers(self, layers: Iterable[nn.Module]) -> None:
        """Load self-attention, feed-forward network and their LayerNorms of each layer."""
        for number, layer in enumerate(layers):
            for name in _SHARED:
                self._load(f"layers.{number}.{name}", layer.get_submodule(name))

    def _load(self, prefix: str, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            self._copy(f"{prefix}.{name}", self._weight(f"{prefix}.{name}"), parameter)

    def _weight(self, name: str) -> Tensor:
        if name not in self.weights:
            raise UserError(f"the BERT {self.path} lacks the weights for {name}; it is not a whole encoder")
        return self.weights[name]

    def _copy(self, name: str, value: Tensor, parameter: Tensor) -> None:
        self._require_shape(name, value, parameter.shape)
        with torch.no_grad():
            parameter.copy_(value)
        parameter.param_group = GROUP

    def _require_shape(self, name: str, value: Tensor, shape: tuple[int, ...]) -> None:
        if tuple(value.shape) != tuple(shape):
            raise UserError(
                f"the weights of the BERT {self.path} for {name} have the shape {tuple(value.shape)}, not "
                f"{tuple(shape)}; do its config.json and its weights belong together?"
            )
