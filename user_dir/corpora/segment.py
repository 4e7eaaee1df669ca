"""Segmentation into subword pieces, with one model for both languages: sentencepiece BPE, or WordPiece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece

from ..errors import UserError
from .readers.triplets import BETWEEN
from .reserved import FAIRSEQ, RESERVED, SYMBOLS, UNKNOWN, spelled
from .spacing import spaced
from .word_check import WordCheck
from .wordpiece import WordPieces
from .worker_pool import batches


def load_pieces(model: Path) -> sentencepiece.SentencePieceProcessor | WordPieces:
    """Load a sentencepiece model or the tokenizer of a BERT; raises UserError if it is missing or corrupt."""
    if model.suffix in (".txt", ".json"):
        return WordPieces(model)
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError):
        raise UserError(
            f"{model} is not a complete sentencepiece model; prepare the corpus again, with --force"
        ) from None


def segment(
    sentences: Iterable[str], model: Path, workers: int, separated: bool = False, where: str = ""
) -> Iterator[str]:
    """Segment each sentence into pieces joined by spaces; ``separated`` as for :func:`pieces_of`.

    Raises:
        UserError: a sentence that is looked at has other words in its pieces; with its line and ``where``.
    """
    processor = load_pieces(model)
    check = WordCheck(processor, where, separated)
    for batch in batches(sentences):
        for sentence, pieces in zip(batch, pieces_of(batch, processor, workers, separated)):
            check(sentence, pieces)
            yield pieces


def pieces_of(
    sentences: list[str],
    processor: sentencepiece.SentencePieceProcessor | WordPieces,
    workers: int = 1,
    separated: bool = False,
) -> Iterator[str]:
    """Each sentence as its pieces, joined by spaces.

    White space of every kind parts words (see :func:`.spacing.spaced`). Text that reads like one of
    fairseq's symbols, or of our own, becomes ordinary pieces.

    Args:
        sentences: text.
        processor: from :func:`load_pieces`.
        workers: number of threads.
        separated: whether `` [SEP] `` in a sentence is the separator of post-editing triplets.
    """
    parts = [spaced(text).split(BETWEEN) if separated else [spaced(text)] for text in sentences]
    flat = [part for each in parts for part in each]
    if workers == 1 and isinstance(processor, sentencepiece.SentencePieceProcessor):
        # For a list it would start a thread, which takes longer than a sentence.
        encoded = (processor.encode(part, out_type=str) for part in flat)
    else:
        encoded = iter(processor.encode(flat, out_type=str, num_threads=workers))
    # A WordPiece vocabulary has a token for unknown words.
    reserved = RESERVED - {UNKNOWN} if isinstance(processor, WordPieces) else RESERVED
    for each in parts:
        pieces = spelled(next(encoded), reserved)
        for _ in each[1:]:
            pieces = [*pieces, SYMBOLS[0], *spelled(next(encoded), reserved)]
        yield " ".join(pieces)


def vocabulary(model: Path) -> list[str]:
    """All pieces of the model but those with the names of symbols that fairseq's dictionary adds."""
    processor = load_pieces(model)
    if isinstance(processor, WordPieces):
        return processor.symbols
    pieces = map(processor.id_to_piece, range(processor.get_piece_size()))
    return [piece for piece in pieces if piece not in FAIRSEQ]
