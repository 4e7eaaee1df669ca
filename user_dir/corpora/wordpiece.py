"""Segmentation with the WordPiece vocabulary of a BERT, in sentencepiece's notation.

WordPiece marks the pieces that continue a word (``Haus ##es``), sentencepiece those that begin one
(``▁Haus es``). Pieces are written in sentencepiece's way, so that whatever restores text from them works
unchanged. Text is split at spaces only, as in the code of Correia and Martins 2019: BERT itself also splits
at punctuation, after which spaces could not be restored. Text should therefore be tokenised beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import read_json
from .corpus import TOKENIZER, VOCABULARY
from .readers import read_lines

CONFIG = "tokenizer_config.json"
FILES = (VOCABULARY, CONFIG, TOKENIZER)
UNKNOWN = "<unk>"
SPECIAL = {"[PAD]": "<pad>", "[UNK]": UNKNOWN, "[CLS]": "<s>", "[SEP]": "▁[SEP]", "[MASK]": "<mask>"}
"""BERT's special tokens as symbols of our dictionaries."""
RULES = {"clean_text": True, "lowercase": True, "handle_chinese_chars": True, "strip_accents": None}
"""What a BERT does to text before WordPiece, unless its files say otherwise; None: as ``lowercase``."""
_NO_WORD = " "  # the name of the token for unknown words, which no word of a text can have


def symbol_of(token: str) -> str:
    """The symbol of a fairseq dictionary for a token of a BERT's vocabulary."""
    if token in SPECIAL:
        return SPECIAL[token]
    return token[2:] if token.startswith("##") and len(token) > 2 else f"▁{token}"


def read_tokenizer(files: Mapping[str, Path]) -> WordPieces:
    """Read a tokenizer from its ``tokenizer.json``, or else from the others of :data:`FILES`; keyed by name.

    Raises UserError if the vocabulary is not that of a BERT.
    """
    rules, path = None, files.get(TOKENIZER) or files[VOCABULARY]
    if TOKENIZER in files:
        tokenizer = read_json(path, "the tokenizer of a BERT")
        numbers = {token["content"]: token["id"] for token in tokenizer.get("added_tokens", [])}
        numbers |= tokenizer["model"]["vocab"]
        tokens = sorted(numbers, key=numbers.__getitem__)
        rules = tokenizer.get("normalizer") or dict.fromkeys(RULES, False)
    else:
        tokens = list(read_lines(path))
        if CONFIG in files:
            rules = read_json(files[CONFIG], "the settings of a BERT's tokenizer")
            names = {"lowercase": "do_lower_case", "handle_chinese_chars": "tokenize_chinese_chars"}
            rules = {rule: rules[name] for rule in RULES if (name := names.get(rule, rule)) in rules}
    if missing := SPECIAL.keys() - set(tokens):
        raise UserError(f"{path} is not the vocabulary of a BERT: it lacks {min(missing)}")
    return WordPieces(tokens, rules)


class WordPieces:
    """Segments sentences as sentencepiece's processor does; a word with an unknown character is ``<unk>``.

    Attributes:
        tokens: the vocabulary, in order.
        symbols: the symbol of each token in our dictionaries.
        rules: how text is normalised first, the ``normalizer`` of a tokenizer.json; None for not at all.
    """

    def __init__(self, tokens: list[str], rules: dict[str, Any] | None):
        from tokenizers import Tokenizer

        self.tokens, self.symbols, self.rules = tokens, list(map(symbol_of, tokens)), rules
        if rules is not None:
            self.rules = {"type": "BertNormalizer"} | {rule: rules.get(rule, RULES[rule]) for rule in RULES}
            if self.rules["strip_accents"] is None:
                self.rules["strip_accents"] = self.rules["lowercase"]
        # In text, "[PAD]" and the like are ordinary words.
        numbers = {token: number for number, token in enumerate(tokens) if token not in SPECIAL}
        numbers[_NO_WORD] = self.symbols.index(UNKNOWN)
        self._tokenizer = Tokenizer.from_str(self._whole(numbers, _NO_WORD))

    def encode(self, sentences: list[str], out_type: type = str, num_threads: int = 1) -> list[list[str]]:
        """The pieces of each sentence; the arguments are those of sentencepiece."""
        encoded = self._tokenizer.encode_batch(sentences, add_special_tokens=False)
        return [[self.symbols[number] for number in sentence.ids] for sentence in encoded]

    def normalize(self, sentence: str) -> str:
        """The sentence after the rules, such as lower-casing, and before it is split."""
        return self._tokenizer.normalizer.normalize_str(sentence) if self.rules else sentence

    def write(self, folder: Path) -> None:
        """Write a file that :func:`read_tokenizer` reads back: a ``vocab.txt`` if there are no rules."""
        numbers = {token: number for number, token in enumerate(self.tokens)}
        if self.rules:
            (folder / TOKENIZER).write_text(self._whole(numbers, "[UNK]"), encoding="utf-8")
        else:
            (folder / VOCABULARY).write_text("".join(f"{token}\n" for token in self.tokens), encoding="utf-8")

    def _whole(self, numbers: dict[str, int], unknown: str) -> str:
        """The tokenizer.json of a vocabulary."""
        model = {"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##"}
        model |= {"max_input_chars_per_word": 100, "vocab": numbers}  # longer words are <unk>
        whole = {"version": "1.0", "added_tokens": [], "normalizer": self.rules}
        whole |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
        return json.dumps(whole, ensure_ascii=False, indent=0) + "\n"
