"""Segmentation with the WordPiece vocabulary of a BERT, in sentencepiece's notation.

WordPiece marks the pieces that continue a word (``Haus ##es``), sentencepiece those that begin one
(``▁Haus es``). Pieces are written in sentencepiece's way, so that whatever restores text from them works
unchanged. Text is split at spaces only, as in the code of Correia and Martins 2019: BERT itself also splits
at punctuation, from which the spaces could not be restored. It should therefore be tokenised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..files import read_json
from .corpus import TOKENIZER, VOCABULARY
from .readers import read_lines

CONFIG = "tokenizer_config.json"
FILES = (VOCABULARY, CONFIG, TOKENIZER)
UNKNOWN = "<unk>"
SPECIAL = {"[PAD]": "<pad>", "[UNK]": UNKNOWN, "[CLS]": "<s>", "[SEP]": "▁[SEP]", "[MASK]": "<mask>"}
"""BERT's special tokens as symbols of our dictionaries."""
LONGEST = 100  # characters of a word; longer ones are <unk>
_NO_WORD = " "  # names what stands for unknown words; no word of a text is a space


class Rules(NamedTuple):
    """What a BERT does to text before WordPiece."""

    lower_case: bool
    strip_accents: bool
    chinese_characters: bool  # whether each is a word
    clean: bool = True  # whether control characters are removed

    @classmethod
    def of(cls, settings: dict, lower_case: str, chinese_characters: str) -> Rules:
        """From the settings of a file, under the names that two of them have there."""
        lower, accents = settings.get(lower_case, True), settings.get("strip_accents")
        others = settings.get(chinese_characters, True), settings.get("clean_text", True)
        return cls(lower, lower if accents is None else accents, *others)


def symbol_of(token: str) -> str:
    """The symbol of a fairseq dictionary for a token of a BERT's vocabulary."""
    if token in SPECIAL:
        return SPECIAL[token]
    return token[2:] if token.startswith("##") and len(token) > 2 else f"▁{token}"


def read_tokenizer(files: Mapping[str, Path]) -> WordPieces:
    """Read a tokenizer from its ``tokenizer.json``, or else from the others of :data:`FILES`, by name.

    Raises UserError if it is not that of a BERT.
    """
    rules, path = None, files.get(TOKENIZER) or files[VOCABULARY]
    if TOKENIZER in files:
        given = read_json(path, "the tokenizer of a BERT")
        added = {token["content"]: token["id"] for token in given.get("added_tokens", [])}
        numbers = added | dict(given["model"]["vocab"])
        tokens = sorted(numbers, key=numbers.__getitem__)
        nothing = {"lowercase": False, "handle_chinese_chars": False, "clean_text": False}
        rules = Rules.of(given.get("normalizer") or nothing, "lowercase", "handle_chinese_chars")
    else:
        tokens = list(read_lines(path))
        if CONFIG in files:
            config = read_json(files[CONFIG], "the settings of a BERT's tokenizer")
            rules = Rules.of(config, "do_lower_case", "tokenize_chinese_chars")
    if missing := SPECIAL.keys() - set(tokens):
        raise UserError(f"{path} is not the vocabulary of a BERT: it lacks {min(missing)}")
    return WordPieces(tokens, rules)


class WordPieces:
    """Segments sentences as sentencepiece's processor does; a word with an unknown character is ``<unk>``.

    Attributes:
        tokens: the vocabulary, in order.
        symbols: the same as symbols of our dictionaries.
        rules: what is done to text before; None for nothing.
    """

    def __init__(self, tokens: list[str], rules: Rules | None = None):
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        self.tokens, self.symbols, self.rules = tokens, list(map(symbol_of, tokens)), rules
        # In text, "[PAD]" and the like are words as others.
        numbers = {token: number for number, token in enumerate(tokens) if token not in SPECIAL}
        numbers[_NO_WORD] = self.symbols.index(UNKNOWN)
        model = models.WordPiece(numbers, unk_token=_NO_WORD, max_input_chars_per_word=LONGEST)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        if rules is not None:
            order = rules.clean, rules.chinese_characters, rules.strip_accents, rules.lower_case
            self._tokenizer.normalizer = normalizers.BertNormalizer(*order)

    def encode(self, sentences: list[str], out_type: type = str, num_threads: int = 1) -> list[list[str]]:
        """The pieces of each sentence; the arguments are those of sentencepiece."""
        encoded = self._tokenizer.encode_batch(sentences, add_special_tokens=False)
        return [[self.symbols[number] for number in sentence.ids] for sentence in encoded]

    def normalize(self, sentence: str) -> str:
        """The sentence as it is before it is split, such as lower-cased."""
        return sentence if self.rules is None else self._tokenizer.normalizer.normalize_str(sentence)

    def write(self, folder: Path) -> None:
        """Write a file from which :func:`read_tokenizer` reads the same: a ``vocab.txt`` has no rules."""
        if self.rules is None:
            lines = "".join(f"{token}\n" for token in self.tokens)
            (folder / VOCABULARY).write_text(lines, encoding="utf-8")
            return
        lower_case, strip_accents, chinese_characters, clean = self.rules
        normalizer = {"type": "BertNormalizer", "clean_text": clean, "lowercase": lower_case}
        normalizer |= {"handle_chinese_chars": chinese_characters, "strip_accents": strip_accents}
        model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
        model |= {"max_input_chars_per_word": LONGEST}
        model |= {"vocab": {token: number for number, token in enumerate(self.tokens)}}
        whole = {"version": "1.0", "added_tokens": [], "normalizer": normalizer}
        whole |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
        text = json.dumps(whole, ensure_ascii=False, indent=0) + "\n"
        (folder / TOKENIZER).write_text(text, encoding="utf-8")
