"""Subword pieces: a sentencepiece BPE model of both languages, or the WordPiece vocabulary of a BERT.

All kinds of white space separate words, and text that reads like a special symbol becomes ordinary pieces.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import sentencepiece

from ..errors import UserError
from .cleaning import normalise, steps_of_new_text
from .corpus import Corpus
from .readers.triplets import BETWEEN, MASK, SEPARATOR, source_line
from .wordpiece import UNKNOWN, WordPieces, read_tokenizer

SPACE_MARK = "▁"
"""What sentencepiece writes for a space."""
SYMBOLS = (f"{SPACE_MARK}{SEPARATOR}", MASK)
"""Our own: the separator of post-editing triplets with the space before it, and the mask."""
SEPARATORS = (SYMBOLS[0], SEPARATOR)
"""Symbols that separate source and machine translation: of corpora from prepare.py, and of others."""
FILLERS = [f"madeupword{number:04}" for number in range(8)]
"""fairseq's names of entries that fill a dictionary up to a multiple of 8, which suits tensor cores."""
FAIRSEQ = frozenset(["<s>", "<pad>", "</s>", UNKNOWN, *FILLERS])
"""Symbols that fairseq itself adds to dictionaries."""
RESERVED = FAIRSEQ.union(SYMBOLS)
FROM_TRANSLATION = "from_translation"

MAX_BYTES = 4192  # sentencepiece leaves longer lines out
LONG = MAX_BYTES // 4  # characters, of at most four bytes
FULL_BLOCK = "\u2585"  # ▅; sentencepiece uses it internally and leaves out lines that contain it
META = re.compile("<unk>|</?s>")  # sentencepiece deletes these, and with them perhaps the only "s"
BATCH = 10_000  # lines that are segmented at a time
_OTHER_SPACE = re.compile(rf"[^\S ]|{SPACE_MARK}")


def spaced(text: str) -> str:
    """Replace each character of white space, and sentencepiece's mark for a space, by a space.

    White space is what ``str.split``, and therefore fairseq, splits at. sentencepiece splits at spaces only:
    any other would stay inside a piece, where fairseq would lose it and join the words on both sides.
    """
    return _OTHER_SPACE.sub(" ", text)


def spelled(pieces: list[str], reserved: frozenset[str] = RESERVED) -> list[str]:
    """Split pieces that read like reserved symbols into characters: text may contain ``</s>`` as such."""
    if reserved.isdisjoint(pieces):
        return pieces
    return [part for piece in pieces for part in (piece if piece in reserved else (piece,))]


def separator_of(indices: Mapping[str, int]) -> int | None:
    """The index of the separator, given a dictionary's indices by symbol; None if it has no separator."""
    return next((indices[symbol] for symbol in SEPARATORS if symbol in indices), None)


def suitable_size(pairs: int) -> int:
    """A vocabulary size for so many training pairs, close to the recipes in ``data/``; WMT14's at most."""
    return min(max(100, round(pairs**0.4) * 100), 32_000)


def sample(items: Iterable, count: int, size: int) -> Iterator:
    """A random sample of ``size`` of the ``count`` items, in their order; all items if there are fewer.

    sentencepiece's own sampling differs between processes, whatever its seed.
    """
    chosen = set(Random(1).sample(range(count), min(size, count)))
    return (item for number, item in enumerate(items) if number in chosen)


def train_model(
    sentences: Iterable[str],
    model: Path,
    vocabulary_size: int,
    character_coverage: float = 1.0,
    normalization: str = "nmt_nfkc",
    split_digits: bool = False,
    symbols: Sequence[str] = (),
    **options: Any,
) -> None:
    """Train a BPE model on all sentences; writes ``model`` and, next to it, a file ending in ``.vocab``.

    ``vocabulary_size`` counts all entries, including <unk>, <s> and </s>; ``symbols`` become pieces that no
    text is segmented across. Raises UserError if the text is too small for the vocabulary or too varied.
    """
    if split_digits:  # not always: a model stores every option given
        options["split_digits"] = True
    written = io.BytesIO()  # a file's name would be stored in the model
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_readable(sentences),
            model_writer=written,
            model_type="bpe",
            vocab_size=vocabulary_size,
            character_coverage=character_coverage,
            normalization_rule_name=normalization,
            byte_fallback=False,
            user_defined_symbols=list(symbols),
            input_sentence_size=0,  # no sampling
            shuffle_input_sentence=False,
            max_sentence_length=MAX_BYTES,
            minloglevel=2,
            **options,
        )
    except (RuntimeError, ValueError) as error:
        most = re.search(r"value <= (\d+)", str(error))
        least = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        limit = f"{most[1]} or less" if most else f"{least[1]} or more" if least else f"another: {error}"
        raise UserError(
            f"{vocabulary_size} pieces do not suit the training text; use --vocab-size {limit}"
        ) from None
    model.write_bytes(written.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    rows = ((processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor)))
    table = "".join(f"{piece}\t{score:g}\n" for piece, score in rows)
    model.with_suffix(".vocab").write_text(table, encoding="utf-8")


def _readable(sentences: Iterable[str]) -> Iterator[str]:
    """The sentences as short lines without sentencepiece's marks, so that it leaves nothing out."""
    for sentence in sentences:
        text = META.sub(lambda match: " ".join(match[0]), spaced(sentence).replace(FULL_BLOCK, " "))
        # BPE learns from single words, so lines may be split between words.
        yield from [text] if len(text) < LONG else textwrap.wrap(text, LONG, break_on_hyphens=False)


def load_pieces(model: Path) -> sentencepiece.SentencePieceProcessor | WordPieces:
    """Load a sentencepiece model or the tokenizer of a BERT; raises UserError if it is missing or corrupt."""
    if model.suffix in (".txt", ".json"):
        return read_tokenizer({model.name: model})
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError):
        raise UserError(f"{model} is not a complete sentencepiece model") from None


def segment(sentences: Iterable[str], model: Path, workers: int, separated: bool = False) -> Iterator[str]:
    """Segment each sentence into pieces joined by spaces; arguments as for :func:`pieces_of`."""
    processor, sentences = load_pieces(model), iter(sentences)
    while batch := list(islice(sentences, BATCH)):
        yield from pieces_of(batch, processor, workers, separated)


def pieces_of(
    sentences: list[str],
    processor: sentencepiece.SentencePieceProcessor | WordPieces,
    workers: int = 1,
    separated: bool = False,
) -> Iterator[str]:
    """Each sentence as its pieces, joined by spaces, in a number of threads.

    ``separated``: whether `` [SEP] `` in a sentence is the separator of post-editing triplets.
    """
    parts = [spaced(text).split(BETWEEN) if separated else [spaced(text)] for text in sentences]
    flat = [part for sentence in parts for part in sentence]
    encoded = iter(processor.encode(flat, out_type=str, num_threads=workers))
    # WordPieces returns <unk> for an unknown word, never for text that reads like it.
    reserved = RESERVED - {UNKNOWN} if isinstance(processor, WordPieces) else RESERVED
    for sentence in parts:
        pieces = spelled(next(encoded), reserved)
        for _ in sentence[1:]:
            pieces = [*pieces, SYMBOLS[0], *spelled(next(encoded), reserved)]
        yield " ".join(pieces)


def vocabulary(model: Path) -> list[str]:
    """All pieces of the model except those named like symbols that fairseq adds to dictionaries."""
    processor = load_pieces(model)
    if isinstance(processor, WordPieces):
        return [symbol for symbol in processor.symbols if symbol not in FAIRSEQ]
    pieces = map(processor.id_to_piece, range(len(processor)))
    return [piece for piece in pieces if piece not in FAIRSEQ]


def write_dictionary(pieces: Iterable[str], segmented: Iterable[str], path: Path) -> None:
    """Write a fairseq ``dict.txt``: all pieces by their count, filled up to a multiple of 8 as by fairseq."""
    seen = Counter(piece for line in segmented for piece in line.split(" "))
    counts = Counter({piece: seen[piece] for piece in pieces})
    entries = [f"{piece} {count}\n" for piece, count in counts.most_common()]
    missing = -(len(entries) + 4) % len(FILLERS)  # 4: fairseq's own
    entries += [f"{filler} 0\n" for filler in FILLERS[:missing]]
    path.write_text("".join(entries), encoding="utf-8")


class NewText:
    """Normalises sentences and segments them into pieces, as ``prepare`` does for test sets of a corpus.

    For a corpus that is released as tokens, sentences must be tokenised in the same way. For a triplet corpus
    a sentence is ``src``, a tab and ``mt``. Raises UserError if the corpus has no model of its pieces.
    """

    def __init__(self, corpus: Corpus, language: str):
        self._language = language
        self._steps = steps_of_new_text(corpus.description)
        self._processor = load_pieces(corpus.pieces)
        self._triplets = corpus.description.triplets
        self._source = language == corpus.languages[0]

    def pieces(self, sentence: str, line: int = 1, name: str = "") -> str:
        """A sentence as its pieces, joined by spaces; empty if normalisation removes everything.

        Raises UserError, with ``name`` and ``line``, unless a source of a triplet corpus has exactly one tab.
        """
        if self._triplets and self._source:
            sentence = source_line(sentence, line, name)
        normalised = normalise([sentence], self._language, self._steps)
        return next(pieces_of(normalised, self._processor, separated=self._triplets))


def case_of(corpus: Corpus, split: str) -> str | None:
    """How scoring treats case that a normalisation step or a BERT's tokenizer removed from a split's pieces.

    ``ignored``: scores are case-insensitive; :data:`FROM_TRANSLATION`: case is restored before scoring; None:
    the pieces of the split have kept their case.
    """
    description = corpus.description
    lost = "lower_case" in description.steps(split)
    if description.wordpiece and not lost:
        rules = load_pieces(corpus.pieces).rules
        lost = rules is not None and rules["lowercase"]
    return (description.case or "ignored") if lost else None
