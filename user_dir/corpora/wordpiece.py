"""Segmentation with the WordPiece vocabulary of a BERT, in sentencepiece's notation.

WordPiece marks the pieces that continue a word (``Haus ##es``), sentencepiece those that begin one
(``▁Haus es``). Pieces are written in sentencepiece's way, so that whatever restores text from them, such as
fairseq's ``--remove-bpe sentencepiece``, works unchanged.

Text is lower-cased and so on as :mod:`.bert_tokenizer` reads it. It is split at spaces only, and each word
from the left into the longest known pieces, as in the code of Correia and Martins 2019 (BERT itself also
splits at punctuation, from which the spaces of the text could not be restored). Text for a BERT should
therefore be tokenised. A word with an unknown character is ``<unk>``.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError
from .bert_tokenizer import SPECIAL, BertTokenizer, read_json, read_vocabulary, symbol_of
from .reserved import FAIRSEQ, UNKNOWN

_NO_WORD = " "  # names what stands for unknown words; no word of a text is a space


class WordPieces:
    """Segments sentences as sentencepiece's processor does.

    Attributes:
        symbols: all pieces, in the order of the vocabulary, without those that every fairseq dictionary has.
        tokens: the vocabulary as the BERT names it.
        rules: what is done to text before, see :class:`~.bert_tokenizer.Rules`; None for nothing.

    Args:
        path: a BERT's ``vocab.txt`` or ``tokenizer.json``.

    Raises:
        UserError: see :func:`~.bert_tokenizer.read_tokenizer`; or the package tokenizers is not installed.
    """

    def __init__(self, path: Path):
        try:
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
        except ImportError:
            raise UserError("a WordPiece vocabulary requires: pip install tokenizers") from None
        given = read_json(path) if path.suffix == ".json" else BertTokenizer(read_vocabulary(path))
        self.tokens = given.tokens
        self._symbols = list(map(symbol_of, self.tokens))
        self.symbols = [symbol for symbol in self._symbols if symbol not in FAIRSEQ]
        # In text, "[PAD]" and the like are words as others.
        words = {token: i for i, token in enumerate(self.tokens) if token not in SPECIAL}
        model = models.WordPiece(
            {**words, _NO_WORD: self._symbols.index(UNKNOWN)},
            unk_token=_NO_WORD,
            max_input_chars_per_word=given.longest_word,
        )
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        self.rules = rules = given.rules
        if rules is not None:
            self._tokenizer.normalizer = normalizers.BertNormalizer(
                clean_text=rules.clean,
                handle_chinese_chars=rules.chinese_characters,
                strip_accents=rules.strip_accents,
                lowercase=rules.lower_case,
            )

    def encode(self, sentences: list[str], out_type: type = str, num_threads: int = 1) -> list[list[str]]:
        """The pieces of each sentence; the arguments are those of sentencepiece."""
        encoded = self._tokenizer.encode_batch(sentences, add_special_tokens=False)
        return [[self._symbols[i] for i in each.ids] for each in encoded]

    def normalize(self, sentence: str) -> str:
        """The sentence as it is before it is split, such as lower-cased."""
        return sentence if self.rules is None else self._tokenizer.normalizer.normalize_str(sentence)
