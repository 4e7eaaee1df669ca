"""Sentences to subword pieces: one sentencepiece BPE model for both languages of a corpus."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece

from ..errors import UserError
from .workers import batches


def train_model(
    sentences: Iterable[str],
    model: Path,
    vocabulary_size: int,
    character_coverage: float = 1.0,
    normalization: str = "nmt_nfkc",
    byte_fallback: bool = False,
    learn_from: int = 1_000_000,
) -> None:
    """Train a BPE model on the sentences; write ``model`` and beside it the same name with ``.vocab``.

    ``vocabulary_size`` counts every entry, <unk>, <s> and </s> included. One that the text cannot fill, or
    that is too small for its characters, raises a ``UserError`` with the largest or smallest one possible.
    With ``byte_fallback``, a character that has no piece becomes the bytes of its UTF-8 instead of <unk>. Of
    more than ``learn_from`` sentences, so many drawn at random teach the pieces, which bounds memory. The
    same sentences give the same bytes.
    """
    sentencepiece.set_random_generator_seed(1)
    written = io.BytesIO()  # not a file, the name of which would be in the model
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=written,
            model_type="bpe",
            vocab_size=vocabulary_size,
            character_coverage=character_coverage,
            normalization_rule_name=normalization,
            byte_fallback=byte_fallback,
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
            f"give --vocab-size {largest[1]} or less"
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return (
            f"a vocabulary of {vocabulary_size} pieces cannot hold every character of the training text; "
            f"give --vocab-size {smallest[1]} or more"
        )
    return f"sentencepiece could not learn a vocabulary of {vocabulary_size} pieces: {error}"


def load_pieces(model: Path) -> sentencepiece.SentencePieceProcessor:
    """The sentencepiece model in a file; raises ``UserError`` where it is missing or broken."""
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError):
        raise UserError(
            f"{model} is no whole sentencepiece model; prepare the corpus again, with --force"
        ) from None


def segment(sentences: Iterable[str], model: Path, workers: int) -> Iterator[str]:
    """Each sentence as its pieces, joined by spaces."""
    processor = load_pieces(model)
    for batch in batches(sentences):
        for pieces in processor.encode(batch, out_type=str, num_threads=workers):
            yield " ".join(pieces)


def vocabulary(model: Path) -> list[str]:
    """Every piece of the model, but for the special ones that fairseq's dictionary has of its own."""
    processor = load_pieces(model)
    ids = range(processor.get_piece_size())
    return [processor.id_to_piece(i) for i in ids if not (processor.is_unknown(i) or processor.is_control(i))]
