"""What the folder of a BERT says of its tokenizer: the tokens, and what is done to text before WordPiece.

transformers 4 writes ``vocab.txt``, ``tokenizer_config.json`` and mostly ``tokenizer.json``; transformers 5
writes no ``vocab.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from ..errors import UserError
from ..io import shown
from ..schema import pattern, read_object, whole
from .readers import read_lines
from .reserved import SYMBOLS, UNKNOWN

VOCABULARY, CONFIG, TOKENIZER = "vocab.txt", "tokenizer_config.json", "tokenizer.json"
FILES = (VOCABULARY, CONFIG, TOKENIZER)
SPECIAL = {
    "[PAD]": "<pad>",
    "[UNK]": UNKNOWN,
    "[CLS]": "<s>",
    "[SEP]": SYMBOLS[0],
    "[MASK]": SYMBOLS[1],
}
"""BERT's special tokens as symbols of our dictionaries."""
MAX_VOCABULARY = 16 << 20  # bytes of a vocab.txt; that of multilingual BERT has one million
AGAIN = "get its tokenizer again"
OR_ANOTHER = "or use a BERT proper (model_type: bert), whose tokenizer is WordPiece"


_CLASSES = ".*BertTokenizer(Fast)?|PreTrainedTokenizerFast|TokenizersBackend"  # the last two: tokenizer.json
KEYS = {
    "do_lower_case": ("lower_case", "lower-cased"),
    "strip_accents": ("strip_accents", "stripped of accents"),
    "tokenize_chinese_chars": ("chinese_characters", "split at Chinese characters"),
}
"""Of the settings → what is done to text, by the name of a rule and in words."""


class _Config(Struct):
    do_lower_case: bool = True  # the defaults of transformers
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    do_basic_tokenize: Literal[True] = True
    tokenizer_class: pattern(_CLASSES, "the tokenizer of a BERT") | None = None


class _Normalizer(Struct):
    type: Literal["BertNormalizer"]
    lowercase: bool
    strip_accents: bool | None = None
    handle_chinese_chars: bool = True
    clean_text: bool = True


class _Model(Struct):
    vocab: dict[str, whole(0, 10**8)]
    type: Literal["WordPiece"] | UnsetType = UNSET  # not in older files
    continuing_subword_prefix: Literal["##"] = "##"
    max_input_chars_per_word: whole(1, 10**6) = 100


class _Typed(Struct):
    type: Literal["BertPreTokenizer", "Whitespace", "WhitespaceSplit"]


class _Added(Struct):
    id: whole(0, 10**8)
    content: str


class _Tokenizer(Struct):
    model: _Model
    normalizer: _Normalizer | None = None
    pre_tokenizer: _Typed | None = None
    added_tokens: list[_Added] = field(default_factory=list)


@dataclass(frozen=True)
class Rules:
    """What a BERT does to text before WordPiece."""

    lower_case: bool
    strip_accents: bool
    chinese_characters: bool  # whether each is a word
    clean: bool = True  # whether control characters are removed

    @classmethod
    def of(cls, lower_case: bool, strip_accents: bool | None, *others: bool) -> Rules:
        """With accents stripped, unless that is said, where letters are lower-cased."""
        return cls(lower_case, lower_case if strip_accents is None else strip_accents, *others)


@dataclass(frozen=True)
class BertTokenizer:
    """The tokens of a BERT, in order, its rules (None if no file tells them), and the longest known word."""

    tokens: list[str]
    rules: Rules | None = None
    longest_word: int = 100  # characters; longer ones are <unk>

    def written(self) -> str:
        """As a ``tokenizer.json``, from which :func:`read_tokenizer` reads the same."""
        rules = self.rules or Rules(False, False, False, False)
        normalizer = {"type": "BertNormalizer", "clean_text": rules.clean, "lowercase": rules.lower_case}
        normalizer |= {"handle_chinese_chars": rules.chinese_characters, "strip_accents": rules.strip_accents}
        model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
        model |= {"max_input_chars_per_word": self.longest_word}
        model |= {"vocab": {token: number for number, token in enumerate(self.tokens)}}
        whole = {"version": "1.0", "added_tokens": [], "normalizer": normalizer}
        whole |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
        return json.dumps(whole, ensure_ascii=False, indent=0) + "\n"


def symbol_of(token: str) -> str:
    """The symbol of a fairseq dictionary for a token of a BERT's vocabulary."""
    if token in SPECIAL:
        return SPECIAL[token]
    return token[2:] if token.startswith("##") and len(token) > 2 else f"▁{token}"


def files_of(folder: Path) -> dict[str, Path]:
    """The files of :data:`FILES` in a folder, by name; raises UserError if they have no tokens."""
    found = {name: path for name in FILES if (path := folder / name).is_file()}
    if not found.keys() & {VOCABULARY, TOKENIZER}:
        raise UserError(f"{folder} has neither {VOCABULARY} nor {TOKENIZER}; put its tokenizer there")
    return found


def read_tokenizer(files: Mapping[str, Path]) -> BertTokenizer:
    """Read a tokenizer from its files, by their name in :data:`FILES`; one has the tokens.

    Raises:
        UserError: a file is damaged, or of another kind of tokenizer; or two files contradict each other. The
            message names the file and the key.
    """
    vocabulary, config, tokenizer = map(files.get, FILES)
    given = {}
    if config is not None:
        given = read_object(config, "the settings of a BERT's tokenizer", _Config, f"{AGAIN}, {OR_ANOTHER}")
    if tokenizer is None:
        assert vocabulary is not None
        return BertTokenizer(read_vocabulary(vocabulary), _asked(given) if config is not None else None)
    found = read_json(tokenizer)
    if vocabulary is not None and (tokens := read_vocabulary(vocabulary)) != found.tokens[: len(tokens)]:
        raise UserError(f"{vocabulary} and {tokenizer} have different tokens; {AGAIN}")
    asked = _asked({"do_lower_case": found.rules.lower_case, **given})
    for key, (ours, done) in KEYS.items():
        if key in given and getattr(asked, ours) != getattr(found.rules, ours):
            no = " not" if getattr(found.rules, ours) else ""
            raise UserError(
                f"{config}: {key} is {given[key]}, so text is{no} to be {done}, but the normalizer of "
                f"{tokenizer} says otherwise; make them agree, as the BERT was trained"
            )
    return found


def _asked(given: dict[str, Any]) -> Rules:
    """The rules of a ``tokenizer_config.json``, with the defaults of transformers."""
    told = given.get("do_lower_case", True), given.get("strip_accents")
    return Rules.of(*told, given.get("tokenize_chinese_chars", True))


def read_json(path: Path) -> BertTokenizer:
    """The tokens and rules of a ``tokenizer.json``; errors as of :func:`read_tokenizer`."""
    given = read_object(path, "the tokenizer of a BERT", _Tokenizer, f"{AGAIN}, {OR_ANOTHER}")
    model = given["model"]
    numbers = {each["content"]: each["id"] for each in given.get("added_tokens", ())} | model["vocab"]
    tokens = sorted(numbers, key=numbers.__getitem__)
    for expected, token in enumerate(tokens):
        if numbers[token] != expected:
            raise UserError(
                f"{path}: no token has the number {expected}, or several have it (the next is {shown(token)} "
                f"with {numbers[token]}), but a BERT counts them; {AGAIN}"
            )
    _check(path, tokens, "token")
    normalizer, rules = given.get("normalizer"), Rules(False, False, False, False)
    if normalizer is not None:
        told = normalizer["lowercase"], normalizer.get("strip_accents")
        rules = Rules.of(
            *told, *(normalizer.get(key, True) for key in ("handle_chinese_chars", "clean_text"))
        )
    return BertTokenizer(tokens, rules, model.get("max_input_chars_per_word", 100))


def read_vocabulary(path: Path) -> list[str]:
    """The tokens of a ``vocab.txt``, in order.

    Raises:
        UserError: the file is missing, lacks a special token, or has a blank line or a token twice; with the
            line.
    """
    try:
        tokens = list(read_lines(path, most=MAX_VOCABULARY))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    _check(path, tokens, "line")
    return tokens


def _check(path: Path, tokens: list[str], unit: str) -> None:
    first = 1 if unit == "line" else 0  # tokens are counted from 0
    places: dict[str, int] = {}
    for number, token in enumerate(tokens, start=first):
        symbol = symbol_of(token)
        if not token.strip(" \t"):
            raise UserError(f"{path}, {unit} {number} is blank, but a BERT counts its {unit}s; {AGAIN}")
        if symbol in places:
            raise UserError(
                f"{path}, {unit} {number}: {token!r} means the same piece as {unit} {places[symbol]}; "
                "it is not the vocabulary of a BERT"
            )
        places[symbol] = number
    for token, symbol in SPECIAL.items():
        if symbol not in places:
            raise UserError(f"{path} lacks {token}; it is not the vocabulary of a BERT")
