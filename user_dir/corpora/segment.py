"""Segmentation into subword pieces, with one model for both languages: sentencepiece BPE, or WordPiece."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece

from ..errors import UserError
from .wordpiece import WordPieces
from .workers import batches


def train_model(
    sentences: Iterable[str],
    model: Path,
    vocabulary_size: int,
    character_coverage: float = 1.0,
    normalization: str = "nmt_nfkc",
    byte_fallback: bool = False,
    learn_from: int = 1_000_000,
    symbols: Sequence[str] = (),
) -> None:
    """Train a BPE model on sentences; writes ``model`` and, next to it, a file with the extension ``.vocab``.

    ``vocabulary_size`` counts all entries, including <unk>, <s> and </s>. Raises UserError, with the largest
    or smallest possible size, if the text is too small for it or has more characters. With ``byte_fallback``,
    a character without a piece becomes its UTF-8 bytes instead of <unk>. If there are more than
    ``learn_from`` sentences, a random sample of that size is used, which limits memory. The result is
    deterministic. ``symbols`` become pieces that no text is segmented across.
    """
    sentencepiece.set_random_generator_seed(1)
    written = io.BytesIO()  # a file's name would be stored in the model
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=written,
            model_type="bpe",
            vocab_size=vocabulary_size,
            character_coverage=character_coverage,
            normalization_rule_name=normalization,
            byte_fallback=byte_fallback,
            user_defined_symbols=list(symbols),
            input_sentence_size=learn_from,
            shuffle_input_sentence=True,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(_explain(str(error), vocabulary_size)) from None
    model.write_bytes(written.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    rows = ((processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size()))
    vocab = "".join(f"{piece}\t{score:g}\n" for piece, score in rows)
    model.with_suffix(".vocab").write_text(vocab, encoding="utf-8")


def _explain(error: str, vocabulary_size: int) -> str:
    if largest := re.search(r"value <= (\d+)", error):
        return (
            f"the training text is too small for a vocabulary of {vocabulary_size} pieces; "
            f"use --vocab-size {largest[1]} or less"
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return (
            f"a vocabulary of {vocabulary_size} pieces cannot hold every character of the training text; "
            f"use --vocab-size {smallest[1]} or more"
        )
    return f"sentencepiece could not learn a vocabulary of {vocabulary_size} pieces: {error}"


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
