"""Segmentation into subword pieces, with one model for both languages: sentencepiece BPE, or WordPiece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece

from ..errors import UserError
from .wordpiece import WordPieces
from .workers import batches


def load_pieces(model: Path) -> sentencepiece.SentencePieceProcessor | WordPieces:
    """Load a sentencepiece model or a WordPiece vocabulary; raises UserError if it is missing or corrupt."""
    if model.suffix == ".txt":
        return WordPieces(model)
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError):
        raise UserError(
            f"{model} is not a complete sentencepiece model; prepare the corpus again, with --force"
        ) from None


def segment(sentences: Iterable[str], model: Path, workers: int) -> Iterator[str]:
    """Segment each sentence into pieces joined by spaces."""
    processor = load_pieces(model)
    for batch in batches(sentences):
        yield from pieces_of(batch, processor, workers)


def pieces_of(
    sentences: list[str], processor: sentencepiece.SentencePieceProcessor | WordPieces, workers: int = 1
) -> Iterator[str]:
    """Each sentence as its pieces, joined by spaces."""
    for pieces in processor.encode(sentences, out_type=str, num_threads=workers):
        yield " ".join(pieces)


def vocabulary(model: Path) -> list[str]:
    """All pieces of the model except for the special ones, which fairseq's dictionary adds."""
    processor = load_pieces(model)
    if isinstance(processor, WordPieces):
        return processor.symbols
    ids = range(processor.get_piece_size())
    return [processor.id_to_piece(i) for i in ids if not (processor.is_unknown(i) or processor.is_control(i))]
