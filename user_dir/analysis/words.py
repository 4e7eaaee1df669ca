"""Properties of tokens that the measures need: the word a subword piece belongs to, its position and kind."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.data import Dictionary
from torch import Tensor

from ..corpora.languages import language as language_of
from ..corpora.pieces import SPACE_MARK

_QUESTION_MARKS = {"?", "？"}
_LISTS = Path(__file__).parent / "interrogatives"


def interrogatives_of(language: str) -> frozenset[str] | None:
    """The interrogative words of a language, in lower case, or None without a file of them.

    The files, such as ``interrogatives/de.txt``, have a word per line; ``#`` starts a comment.
    """
    path = _LISTS / f"{language_of(language).subtag}.txt"
    if not path.is_file():
        return None
    words = (line.partition("#")[0].strip().casefold() for line in path.read_text("utf-8").splitlines())
    return frozenset(filter(None, words))


@dataclass(frozen=True)
class Side:
    """Properties of the tokens of one side of a batch. All tensors are (B, T)."""

    position: Tensor  # in the sentence from 0, independent of padding; −1 for padding
    word: Tensor  # index of the token's word in its sentence; −1 for padding, </s> and <s>
    eos: Tensor  # whether it is </s>: the last token of a source, the first that a decoder reads
    punctuation: Tensor  # whether the piece is only punctuation
    question: Tensor  # whether it is a question mark
    interrogative: Tensor | None  # whether it is of an interrogative word; None without a list of them
    final_stop: Tensor  # whether it is punctuation at the end of a sentence without a question mark


class Pieces:
    """The symbols of a vocabulary as pieces of words.

    A word starts at sentencepiece's ``▁`` and at the start of a sentence. Since text is not tokenised, a
    piece that is only punctuation is a word of its own and separates its neighbours: ``▁Sofa`` and ``.`` are
    two words. ``</s>`` belongs to no word. ``<unk>`` is a piece without a mark.

    Args:
        dictionary: vocabulary of the language.
        language: language code, to find its interrogative words.
    """

    def __init__(self, dictionary: Dictionary, language: str):
        self.interrogatives = interrogatives_of(language)
        # In languages without spaces, an interrogative word is often one piece of a longer unit after ▁.
        self._match_pieces = not language_of(language).spaced
        self._padding, self._eos = dictionary.pad(), dictionary.eos()
        symbols = dictionary.symbols
        special = {dictionary.pad(), dictionary.eos(), dictionary.bos()}
        texts = ("" if i in special else symbol for i, symbol in enumerate(symbols))
        self._texts = [text.removeprefix(SPACE_MARK) for text in texts]
        tables = {
            "special": [i in special for i in range(len(symbols))],
            "marked": [symbol.startswith(SPACE_MARK) for symbol in symbols],
            "bare": [text == "" for text in self._texts],
            "punctuation": [_is_punctuation(text) for text in self._texts],
            "question": [text in _QUESTION_MARKS for text in self._texts],
        }
        self._tables = {name: torch.tensor(values) for name, values in tables.items()}

    def _look_up(self, table: str, tokens: Tensor) -> Tensor:
        return self._tables[table].to(tokens.device)[tokens]

    def words(self, tokens: Tensor, *, part_punctuation: bool = True) -> Tensor:
        """Index of each token's word in its sentence, from 0; −1 for tokens outside words: (B, T) → (B, T).

        Tokens may be padded on either side. Without ``part_punctuation``, words are split at spaces alone.
        """
        special = self._look_up("special", tokens)
        begins = _shifted(special, True) | self._look_up("marked", tokens)
        if part_punctuation:
            punctuation = self._look_up("punctuation", tokens)
            bare = self._look_up("bare", tokens) & ~special
            begins |= _shifted(punctuation, False) | (punctuation & ~_shifted(bare, False))
        numbers = (begins & ~special).cumsum(1) - 1
        return numbers.masked_fill(special, -1)

    def side(self, tokens: Tensor) -> Side:
        """The properties of tokens (B, T), padded on either side."""
        real = tokens.ne(self._padding)
        word = self.words(tokens)
        punctuation, question = self._look_up("punctuation", tokens), self._look_up("question", tokens)
        column = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        is_last = column == column.masked_fill(word < 0, -1).amax(1, keepdim=True)
        return Side(
            position=(real.cumsum(1) - 1).masked_fill(~real, -1),
            word=word,
            eos=tokens.eq(self._eos),
            punctuation=punctuation,
            question=question,
            interrogative=None if self.interrogatives is None else self._interrogative(tokens, word),
            final_stop=is_last & punctuation & ~question.any(1, keepdim=True),
        )

    def _interrogative(self, tokens: Tensor, words: Tensor) -> Tensor:
        rows = []
        for row, numbers in zip(tokens.tolist(), words.tolist()):
            pieces = [self._texts[token] for token in row]
            texts: dict[int, str] = {}
            for piece, number in zip(pieces, numbers):
                texts[number] = texts.get(number, "") + piece
            both = zip(pieces, numbers)
            rows.append([number >= 0 and self._asks(texts[number], piece) for piece, number in both])
        return torch.tensor(rows, device=tokens.device)

    def _asks(self, word: str, piece: str) -> bool:
        """Whether a word, or in a language without spaces its piece, is interrogative."""
        texts = (word, piece) if self._match_pieces else (word,)
        return any(text.casefold() in self.interrogatives for text in texts)


def _shifted(flags: Tensor, first: bool) -> Tensor:
    """The flag of each token's predecessor, (B, T); ``first`` for the first token."""
    return torch.cat([torch.full_like(flags[:, :1], first), flags[:, :-1]], dim=1)


def _is_punctuation(text: str) -> bool:
    """Whether a nonempty piece consists of characters of Unicode's punctuation categories (P…)."""
    return text != "" and all(unicodedata.category(letter).startswith("P") for letter in text)
