"""Corrupt binarised data ends fairseq with a traceback; a pipe in place of a file makes it hang.

All versions of fairseq are affected. A symbol outside the dictionary is only noticed when its sentence is
read, on a GPU as a CUDA assertion. Unnecessary once fairseq checks the files that it opens.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from fairseq.data import Dictionary, data_utils
from fairseq.file_io import PathManager
from fairseq.tasks import translation
from fairseq.tasks.language_modeling import LanguageModelingTask

from ..corpora.binarised import REMEDY, check_side, reading_dictionary, require_file
from ..errors import UserError, one_line
from .installing import around


@around(Dictionary, "load")
def load_dictionary(load, cls, f, *args, **kwargs):
    """Check a dictionary that is loaded from a file."""
    if not isinstance(f, str) or PathManager.path_requires_pathmanager(f):
        return load(cls, f, *args, **kwargs)
    with reading_dictionary(Path(f)):
        return load(cls, f, *args, **kwargs)


@around(data_utils, "load_indexed_dataset")
def load_indexed_dataset(load, path, dictionary=None, dataset_impl=None, combine=False, default="cached"):
    """Check the binarised data of one side, or of several sides that are combined."""
    for prefix in () if PathManager.path_requires_pathmanager(path) else _parts(path, combine):
        if dataset_impl in (None, "raw") and prefix.exists():  # raw text, which fairseq prefers
            require_file(prefix)
        elif _files(prefix):
            sentences = check_side(prefix, None if dictionary is None else len(dictionary))
            if sentences is not None and not os.path.getsize(f"{prefix}.bin"):
                raise UserError(f"{prefix}.bin is of no sentence, which fairseq cannot load; {REMEDY}")
    return load(path, dictionary, dataset_impl, combine, default)


def _parts(path: str, combine: bool) -> Iterator[Path]:
    """The prefixes that fairseq reads: train, train1, … if it combines them."""
    prefix, number = Path(path), 0
    while number == 0 or (combine and _files(prefix)):
        yield prefix
        number += 1
        prefix = Path(f"{path}{number}")


def _files(prefix: Path) -> list[Path]:
    """The existing ones of the two files of binarised data, of any kind."""
    files = (prefix.with_name(f"{prefix.name}.{ending}") for ending in ("idx", "bin"))
    return [file for file in files if file.exists() or file.is_symlink()]


@around(data_utils, "infer_language_pair")
def infer_language_pair(infer, path):
    """Name a folder that has no data of two languages."""
    try:
        pair = infer(path)
    except OSError as error:
        raise UserError(f"cannot read the folder {path} of binarised data: {error.strerror}") from None
    if None in pair:
        raise UserError(f"there is no binarised data in {path}; {REMEDY}")
    return pair


@around(translation, "load_langpair_dataset")
def load_langpair_dataset(load, data_path, split, src, src_dict, tgt, *args, **kwargs):
    """Name a split that is not there, or whose sides do not fit."""
    for pair in (f"{src}-{tgt}", f"{tgt}-{src}"):
        prefix = Path(data_path, f"{split}.{pair}.{src}")
        if not prefix.exists() and _files(prefix):
            check_side(prefix, len(src_dict))
    try:
        return load(data_path, split, src, src_dict, tgt, *args, **kwargs)
    except FileNotFoundError:
        raise UserError(f"there is no split {split} of {src}-{tgt} in {data_path}; {REMEDY}") from None
    except AssertionError as error:  # sides of different lengths
        raise UserError(f"the split {split} in {data_path} is broken: {one_line(error)}; {REMEDY}") from None


@around(LanguageModelingTask, "load_dataset")
def load_text(load, self, split, *args, **kwargs):
    """Name a split of a language model that is not there."""
    try:
        return load(self, split, *args, **kwargs)
    except FileNotFoundError as error:
        raise UserError(f"{one_line(error)}; {REMEDY}") from None
