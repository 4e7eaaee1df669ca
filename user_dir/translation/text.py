"""Restores text from the pieces that a model outputs."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..corpora.description import Description
from ..corpora.spacing import SPACE_MARK, spaced
from ..languages import language as language_of

_LATIN = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ\u0300-\u036f"  # with combining accents


def join_pieces(pieces: str) -> str:
    """Join sentencepiece pieces separated by spaces, as fairseq does; byte pieces are kept."""
    return pieces.replace(" ", "").replace(SPACE_MARK, " ").strip()


def join_bytes(line: str) -> str:
    """Replace runs of sentencepiece's byte pieces by characters; invalid UTF-8 becomes U+FFFD.

    White space of other kinds becomes a space, as in corpora: a model may write the byte of a line break.
    """

    def decode(found: re.Match) -> str:
        return spaced(bytes.fromhex(re.sub("<0x|>", "", found[0])).decode("utf-8", errors="replace"))

    return re.sub(r"(?:<0x[0-9A-F]{2}>)+", decode, line)


def corpus_lines(hypotheses: list[str], description: Description) -> list[str]:
    """Convert hypotheses with joined pieces to lines of the corpus, decoding byte pieces."""
    return [join_bytes(line) for line in hypotheses] if description.byte_fallback else hypotheses


def natural_text(description: Description, language: str) -> Callable[[str], str]:
    """A function that makes natural text of a line, detokenising it if the corpus is tokenised.

    A BERT takes each Chinese character for a word, so the spaces between them are removed as well.
    """
    parted = description.tokenised or (description.wordpiece and not language_of(language).spaced)
    return detokenizer(language) if parted else lambda line: line


def detokenizer(language: str) -> Callable[[str], str]:
    """A function that detokenises tokens separated by spaces."""
    if not language_of(language).spaced:  # not supported by Moses
        # Keep only spaces between Latin letters, also with accents, or digits.
        return lambda line: re.sub(rf"(?<![{_LATIN}0-9]) | (?![{_LATIN}0-9])", "", line)
    from sacremoses import MosesDetokenizer

    detokenize = MosesDetokenizer(language_of(language).moses).detokenize
    return lambda line: detokenize(line.split())


def moses_tokens(lines: list[str], language: str) -> list[str]:
    """Tokenise lines with Moses; tokens are separated by spaces."""
    from sacremoses import MosesTokenizer

    tokenize = MosesTokenizer(language_of(language).moses).tokenize
    return [tokenize(line, return_str=True, escape=False) for line in lines]
