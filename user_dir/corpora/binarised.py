"""Checks of fairseq's binarised data before anything is computed from it.

Files are memory-mapped and read once, in pieces: the index, with 12 bytes per sentence, and the tokens.
Memory does not grow with the corpus.
"""

from __future__ import annotations

import functools
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..bounded import MAX_WHOLE
from ..errors import UserError, one_line
from ..io import file_version
from .dictionary import Dictionary

MAGIC = b"MMIDIDX\x00\x00"
OTHERS = (b"TNTIDX\x00\x00", b"HUFFIDX\x00\x00")  # fairseq's other formats, which are not checked
HEADER = "<QBQ"  # version, type of the tokens, number of sentences
START = len(MAGIC) + struct.calcsize(HEADER)  # bytes before the lengths
TYPES = {
    code: np.dtype(name)
    for code, name in enumerate(("u1", "i1", "i2", "i4", "i8", "f8", "f8", "u2", "u4", "u8"), start=1)
}
"""fairseq's codes of the types of tokens."""
PIECE = 1 << 20  # sentences, or tokens, read at a time
REMEDY = "prepare the corpus again (prepare with --force, or fairseq-preprocess)"


def require_file(path: Path, what: str = "") -> None:
    """Raise a ``UserError``, which says ``what`` is expected, unless ``path`` is a readable file."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
            raise UserError(f"{path} is {kind}, not a file; {REMEDY}")
        path.open("rb").close()
    except FileNotFoundError:
        raise UserError(f"there is no {what} {path}; {REMEDY}".replace("  ", " ")) from None
    except PermissionError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; look at its permissions") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {REMEDY}") from None


@contextmanager
def reading_dictionary(path: Path) -> Iterator[None]:
    """Turn any exception from reading a missing or corrupt dictionary into a ``UserError``."""
    require_file(path, "dictionary")
    if path.stat().st_size > MAX_WHOLE:
        raise UserError(f"{path} has more than {MAX_WHOLE:,} bytes, too many for a dictionary; {REMEDY}")
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} is not a fairseq dictionary ({one_line(error)}); {REMEDY}") from None


def load_dictionary(path: Path) -> Dictionary:
    """Read a dictionary, which is not to be changed; raises UserError if it is missing or corrupt."""
    with reading_dictionary(path):
        return _dictionary(path, file_version(path))


@functools.lru_cache(maxsize=4)
def _dictionary(path: Path, version: tuple[int, ...]) -> Dictionary:
    return Dictionary.load(path)


def read_dictionary(folder: Path, language: str) -> Dictionary:
    """The dictionary of a language in a folder of binarised data; raises UserError as above."""
    return load_dictionary(folder / f"dict.{language}.txt")


def sentence_lengths(folder: Path, subset: str, languages: tuple[str, str], side: str) -> np.ndarray:
    """The length of each sentence of a side, in tokens with ``</s>``, of data that were checked."""
    return _lengths(folder / f"{subset}.{'-'.join(languages)}.{side}.idx")


def text_lengths(folder: Path, subset: str) -> np.ndarray:
    """The same of text in one language, such as that of a language model."""
    return _lengths(folder / f"{subset}.idx")


def _lengths(index: Path) -> np.ndarray:
    _, count = _header(index)
    return np.fromfile(index, np.int32, count, offset=START).astype(np.int64)


def binarised_lines(folder: Path, subset: str, languages: tuple[str, str], side: str) -> Iterator[str]:
    """The sentences of a side as the symbols of its dictionary, separated by spaces, without ``</s>``."""
    dictionary = read_dictionary(folder, side)
    prefix = folder / f"{subset}.{'-'.join(languages)}.{side}"
    check_side(prefix, len(dictionary))
    tokens, start = tokens_of(prefix), 0
    for length in sentence_lengths(folder, subset, languages, side).tolist():
        yield " ".join(dictionary[token] for token in tokens[start : start + length - 1].tolist())
        start += length


def tokens_of(prefix: Path) -> np.ndarray:
    """The tokens of all sentences, one after the other and each with ``</s>``, of data that were checked."""
    kind, _ = _header(prefix.with_name(f"{prefix.name}.idx"))
    path = prefix.with_name(f"{prefix.name}.bin")
    return np.memmap(path, kind, "r") if path.stat().st_size else np.empty(0, kind)


def _header(index: Path) -> tuple[np.dtype, int] | None:
    """The type of the tokens and the number of sentences; None for a format that is not checked."""
    with index.open("rb") as file:
        header = file.read(START)
    if header.startswith(OTHERS):
        return None
    if not header.startswith(MAGIC) or len(header) < START:
        raise UserError(f"{index} is not an index of binarised data; {REMEDY}")
    _, code, count = struct.unpack(HEADER, header[len(MAGIC) :])
    kind = TYPES.get(code, TYPES[6])
    if kind.kind not in "iu" or index.stat().st_size != START + 12 * count:
        raise UserError(f"{index} is corrupt or truncated; {REMEDY}")
    return kind, count


def check_split(folder: Path, subset: str, languages: tuple[str, str]) -> None:
    """Raise UserError unless both sides of a subset exist, are complete and match their dictionaries.

    Reads every token once. Data in fairseq's older formats is not checked.
    """
    pairs = ["-".join(languages), "-".join(reversed(languages))]
    prefixes = [f"{subset}.{pair}" for pair in pairs]
    found = next((each for each in prefixes if (folder / f"{each}.{languages[0]}.idx").exists()), prefixes[0])
    lengths = []
    for language in languages:
        symbols = len(read_dictionary(folder, language))
        lengths.append(check_side(folder / f"{found}.{language}", symbols))
    if None not in lengths and lengths[0] != lengths[1]:
        raise UserError(
            f"{folder} has {lengths[0]} sentences of {subset} in {languages[0]}, but {lengths[1]} in "
            f"{languages[1]}; {REMEDY}"
        )


def check_side(prefix: Path, symbols: int | None) -> int | None:
    """Raise a ``UserError`` unless ``prefix.idx`` and ``prefix.bin`` exist, are complete and match.

    Args:
        prefix: path of the files of one language of a subset, without extension.
        symbols: size of the dictionary; None for data without one, such as alignments.

    Returns:
        The number of sentences; None for a format that is not checked.
    """
    index, tokens = (prefix.with_name(f"{prefix.name}.{ending}") for ending in ("idx", "bin"))
    for path in (index, tokens):
        require_file(path)
    try:
        return _check_files(index, tokens, symbols)
    except UserError:
        raise
    except (OSError, ValueError) as error:  # from the file system or from mapping
        raise UserError(f"cannot read {prefix}.idx and .bin: {one_line(error)}; {REMEDY}") from None


def _check_files(index: Path, tokens: Path, symbols: int | None) -> int | None:
    header = _header(index)
    if header is None:
        return None
    kind, count = header
    expected, size = _check_index(index, count, kind.itemsize, symbols), tokens.stat().st_size
    if size != expected:
        raise UserError(f"{tokens} has {size:,} bytes, but {expected:,} according to its index; {REMEDY}")
    if symbols is not None and size:
        values = np.memmap(tokens, kind, "r")
        for first in range(0, len(values), PIECE):
            piece = values[first : first + PIECE]
            if piece.min() < 0 or piece.max() >= symbols:
                strange = piece.min() if piece.min() < 0 else piece.max()
                raise UserError(
                    f"{tokens} has the symbol {strange}, but its dictionary has {symbols} symbols; {REMEDY}"
                )
    return count


def _check_index(index: Path, count: int, width: int, symbols: int | None) -> int:
    """Check that each sentence begins where the one before it ends; returns the bytes of all."""
    if not count:
        return 0
    sizes = np.memmap(index, np.int32, "r", START, (count,))
    places = np.memmap(index, np.int64, "r", START + 4 * count, (count,))
    least = 0 if symbols is None else 1  # a sentence has its end at least, an alignment may have no link
    end = 0
    for first in range(0, count, PIECE):
        piece = sizes[first : first + PIECE].astype(np.int64)
        ends = end + piece.cumsum() * width
        if (piece < least).any() or not np.array_equal(places[first : first + PIECE], ends - piece * width):
            raise UserError(f"{index} is corrupt: its sentences are not contiguous; {REMEDY}")
        end = int(ends[-1])
    return end
