"""Integrity check of fairseq's binarised data: compares the index with the data files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import _code_to_dtype

from ..errors import UserError, one_line

MAGIC = b"MMIDIDX\x00\x00"
OLDER = b"TNTIDX\x00\x00"  # still read by fairseq, but not checked here
HEADER = "<QBQ"  # version, type of the tokens, number of sentences
REMEDY = "prepare the corpus again, with --force"


def read_dictionary(folder: Path, language: str) -> Dictionary:
    """Read the dictionary of a language; raises UserError if it is missing or corrupt."""
    path = folder / f"dict.{language}.txt"
    if not path.is_file():
        raise UserError(f"no dictionary {path}; {REMEDY}")
    try:
        return Dictionary.load(str(path))
    except Exception as error:  # fairseq may raise any exception
        raise UserError(f"{path} is not a fairseq dictionary ({one_line(error)}); {REMEDY}") from None


def sentence_lengths(folder: Path, subset: str, languages: tuple[str, str], side: str) -> np.ndarray:
    """The length of each sentence of a side, in tokens with ``</s>``, of data that were checked."""
    content = (folder / f"{subset}.{'-'.join(languages)}.{side}.idx").read_bytes()
    start = len(MAGIC) + struct.calcsize(HEADER)
    _, _, count = struct.unpack(HEADER, content[len(MAGIC) : start])
    return np.frombuffer(content, np.int32, count, start).astype(np.int64)


def check_split(folder: Path, subset: str, languages: tuple[str, str]) -> None:
    """Raise UserError unless both sides of a subset exist, are complete and match their dictionaries.

    Reads every token once. Data in fairseq's older formats is not checked.
    """
    pairs = ["-".join(languages), "-".join(reversed(languages))]
    prefixes = [folder / f"{subset}.{pair}.{languages[0]}" for pair in pairs]
    found = [
        pair for pair, prefix in zip(pairs, prefixes) if prefix.with_name(prefix.name + ".idx").is_file()
    ]
    if not found:
        raise UserError(f"no file {prefixes[0]}.idx; {REMEDY}")
    lengths = []
    for language in languages:
        symbols = len(read_dictionary(folder, language))
        prefix = f"{subset}.{found[0]}.{language}"
        lengths.append(_check_side(folder / f"{prefix}.idx", folder / f"{prefix}.bin", symbols))
    if None not in lengths and lengths[0] != lengths[1]:
        raise UserError(
            f"{folder} has {lengths[0]} sentences of {subset} in {languages[0]}, but {lengths[1]} in "
            f"{languages[1]}; {REMEDY}"
        )


def _check_side(index: Path, tokens: Path, symbols: int) -> int | None:
    """The number of sentences of one side; None for a format that is not checked."""
    for path in (index, tokens):
        if not path.is_file():
            raise UserError(f"no file {path}; {REMEDY}")
    content = index.read_bytes()
    if content.startswith(OLDER):
        return None
    start = len(MAGIC) + struct.calcsize(HEADER)
    if not content.startswith(MAGIC) or len(content) < start:
        raise UserError(f"{index} is not an index of binarised data; {REMEDY}")
    _, code, count = struct.unpack(HEADER, content[len(MAGIC) : start])
    kind = np.dtype(_code_to_dtype.get(code, np.float64))
    if kind.kind not in "iu" or len(content) != start + 12 * count:
        raise UserError(f"{index} is corrupt or truncated; {REMEDY}")
    sizes = np.frombuffer(content, np.int32, count, start).astype(np.int64)
    places = np.frombuffer(content, np.int64, count, start + 4 * count)
    if (sizes < 1).any() or not np.array_equal(places, (sizes.cumsum() - sizes) * kind.itemsize):
        raise UserError(f"{index} is corrupt: its sentences are not contiguous; {REMEDY}")
    expected, size = int(sizes.sum()) * kind.itemsize, tokens.stat().st_size
    if size != expected:
        raise UserError(f"{tokens} has {size:,} bytes, but {expected:,} according to its index; {REMEDY}")
    if size:
        values = np.memmap(tokens, kind, "r")
        if values.min() < 0 or values.max() >= symbols:
            raise UserError(
                f"{tokens} has the symbol {values.max()}, but its dictionary has {symbols} symbols; {REMEDY}"
            )
    return count
