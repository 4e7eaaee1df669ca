"""Segmentation with the WordPiece vocabulary of a BERT, in sentencepiece's notation.

WordPiece marks the pieces that continue a word (``Haus ##es``), sentencepiece those that begin one
(``▁Haus es``). Pieces are written in sentencepiece's way, so that whatever restores text from them, such as
fairseq's ``--remove-bpe sentencepiece``, works unchanged. :func:`symbol_of` converts a token's name.

Text is split at spaces only, and each word from the left into the longest known pieces, as in the code of
Correia and Martins 2019 (BERT itself also splits at punctuation, from which the spaces of the text could not
be restored). Text for a BERT should therefore be tokenised. A word with an unknown character is ``<unk>``.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError
from .readers import read_lines
from .reserved import FAIRSEQ, SYMBOLS, UNKNOWN

SPECIAL = {
    "[PAD]": "<pad>",
    "[UNK]": UNKNOWN,
    "[CLS]": "<s>",
    "[SEP]": SYMBOLS[0],
    "[MASK]": SYMBOLS[1],
}
"""BERT's special tokens as symbols of our dictionaries."""
_NO_WORD = " "  # names what stands for unknown words; no word of a text is a space
_MAX_WORD = 100  # characters of a word; longer ones are <unk>, as in BERT

MAX_VOCABULARY = 16 << 20  # bytes of a vocab.txt; that of multilingual BERT has one million


def symbol_of(token: str) -> str:
    """The symbol of a fairseq dictionary for a token of a BERT's vocabulary."""
    if token in SPECIAL:
        return SPECIAL[token]
    return token[2:] if token.startswith("##") and len(token) > 2 else f"▁{token}"


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
    lines: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        symbol = symbol_of(token)
        if not token.strip(" \t"):
            raise UserError(
                f"{path}, line {number} is blank, but a BERT counts its lines; get its vocabulary again"
            )
        if symbol in lines:
            raise UserError(
                f"{path}, line {number}: {token!r} means the same piece as line {lines[symbol]}; "
                "it is not the vocabulary of a BERT"
            )
        lines[symbol] = number
    for token, symbol in SPECIAL.items():
        if symbol not in lines:
            raise UserError(f"{path} lacks {token}; it is not the vocabulary of a BERT")
    return tokens


class WordPieces:
    """Segments sentences as sentencepiece's processor does.

    Attributes:
        symbols: all pieces, in the order of the vocabulary, without those that every fairseq dictionary has.

    Args:
        path: a BERT's ``vocab.txt``.

    Raises:
        UserError: see :func:`read_vocabulary`; or the package tokenizers is not installed.
    """

    def __init__(self, path: Path):
        try:
            from tokenizers import Tokenizer, models, pre_tokenizers
        except ImportError:
            raise UserError("a WordPiece vocabulary requires: pip install tokenizers") from None
        tokens = read_vocabulary(path)
        self._symbols = list(map(symbol_of, tokens))
        self.symbols = [symbol for symbol in self._symbols if symbol not in FAIRSEQ]
        # In text, "[PAD]" and the like are words as others.
        words = {token: i for i, token in enumerate(tokens) if token not in SPECIAL}
        model = models.WordPiece(
            {**words, _NO_WORD: self._symbols.index(UNKNOWN)},
            unk_token=_NO_WORD,
            max_input_chars_per_word=_MAX_WORD,
        )
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    def encode(self, sentences: list[str], out_type: type = str, num_threads: int = 1) -> list[list[str]]:
        """The pieces of each sentence; the arguments are those of sentencepiece."""
        encoded = self._tokenizer.encode_batch(sentences, add_special_tokens=False)
        return [[self._symbols[i] for i in each.ids] for each in encoded]

    def normalize(self, sentence: str) -> str:
        """The sentence, which WordPiece does not change."""
        return sentence
