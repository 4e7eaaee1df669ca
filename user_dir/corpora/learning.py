"""Learning of subword pieces: a sentencepiece BPE model."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece

from ..errors import UserError
from .spacing import spaced

MAX_BYTES = 4192  # sentencepiece leaves longer lines out
FULL_BLOCK = "\u2585"  # ▅; sentencepiece leaves out lines that have it, because it is its own mark
MAX_SUITABLE = 32_000  # entries; the paper's 32k are BPE merges
META = re.compile("<unk>|</?s>")  # left out of the text by sentencepiece, with the only "s" it may have


class SizeError(UserError):
    """The text has fewer pieces than asked for (then ``largest`` is their number) or needs ``smallest``."""

    def __init__(self, message: str, largest: int | None = None, smallest: int | None = None) -> None:
        super().__init__(message)
        self.largest, self.smallest = largest, smallest


def suitable_size(pairs: int) -> int:
    """A vocabulary for so many training pairs: 100 · pairs^0.4 to the nearest hundred, at most 32,000.

    Fits the recipes of ``data/``: 6,100 for Multi30k (which has 6,000), 7,600 for Tanaka (8,000), 12,100 for
    IWSLT14 (10,000), 32,000 for WMT14.
    """
    return min(max(100, round(pairs**0.4) * 100), MAX_SUITABLE)


def train_model(
    sentences: Iterable[str],
    model: Path,
    vocabulary_size: int,
    character_coverage: float = 1.0,
    normalization: str = "nmt_nfkc",
    byte_fallback: bool = False,
    symbols: Sequence[str] = (),
) -> None:
    """Train a BPE model on all sentences; writes ``model`` and, next to it, a file ending in ``.vocab``.

    ``vocabulary_size`` counts all entries, including <unk>, <s> and </s>. Raises SizeError, with the largest
    or smallest possible size, if the text is too small for it or has more characters. With ``byte_fallback``,
    a character without a piece becomes its UTF-8 bytes instead of <unk>. The result depends on nothing but
    the arguments. ``symbols`` become pieces that no text is segmented across.
    """
    written = io.BytesIO()  # a file's name would be stored in the model
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=readable(sentences),
            model_writer=written,
            model_type="bpe",
            vocab_size=vocabulary_size,
            character_coverage=character_coverage,
            normalization_rule_name=normalization,
            byte_fallback=byte_fallback,
            user_defined_symbols=list(symbols),
            input_sentence_size=0,  # no sampling
            shuffle_input_sentence=False,
            max_sentence_length=MAX_BYTES,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        raise _explained(str(error), vocabulary_size) from None
    model.write_bytes(written.getvalue())
    model.with_suffix(".vocab").write_text(_table(written.getvalue()), encoding="utf-8")


def readable(sentences: Iterable[str]) -> Iterator[str]:
    """The sentences in a form of which sentencepiece leaves nothing out: short lines without its marks.

    Words are learned from one by one, so that it makes no difference where lines are split between them.
    """
    for sentence in sentences:
        text = META.sub(lambda found: " ".join(found[0]), spaced(sentence).replace(FULL_BLOCK, " ")).encode()
        start = 0
        while len(text) - start > MAX_BYTES:
            end = text.rfind(b" ", start + 1, start + MAX_BYTES + 1)
            if end < 0:  # a word that is too long itself, or text without spaces
                end = start + MAX_BYTES
                while text[end] & 0xC0 == 0x80:  # within a character
                    end -= 1
            yield text[start:end].decode()
            start = end
        yield text[start:].decode()


def _table(model: bytes) -> str:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rows = ((processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size()))
    return "".join(f"{piece}\t{score:g}\n" for piece, score in rows)


def _explained(error: str, vocabulary_size: int) -> UserError:
    if largest := re.search(r"value <= (\d+)", error):
        return SizeError(
            f"the training text is too small for a vocabulary of {vocabulary_size} pieces; "
            f"use --vocab-size {largest[1]} or less",
            largest=int(largest[1]),
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return SizeError(
            f"a vocabulary of {vocabulary_size} pieces cannot hold every character of the training text; "
            f"use --vocab-size {smallest[1]} or more",
            smallest=int(smallest[1]),
        )
    return UserError(f"sentencepiece could not learn a vocabulary of {vocabulary_size} pieces: {error}")
