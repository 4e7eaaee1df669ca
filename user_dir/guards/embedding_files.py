"""A missing or unfitting ``--encoder-embed-path`` or ``--decoder-embed-path`` ends with a traceback.

All versions of fairseq read pretrained embeddings without checks: a first line that is no header is dropped,
a vector of one number is repeated, a cut file is taken for a whole one, and a file without a single word of
the dictionary has no effect. Unnecessary once fairseq checks the files.
"""

import math
import os
import re

import torch
from fairseq import utils
from torch import Tensor, nn

from ..errors import UserError, exit_on_user_error
from .installing import around

MAX_LINE = 1 << 20  # characters; vectors have some hundred numbers


class _Embeddings(dict):
    """Vectors by word, and the file they are from."""

    def __init__(self, path: str):
        super().__init__()
        self.path = path


@around(utils, "parse_embedding")
def parse_embedding(parse, embed_path: str) -> dict[str, Tensor]:
    """Read embeddings with an error message for what is wrong, and the line."""
    with exit_on_user_error():
        return read_embeddings(embed_path)


@around(utils, "load_embedding")
def load_embedding(load, embed_dict, vocab, embedding: nn.Embedding) -> nn.Embedding:
    """Check that the embeddings fit the model before they are copied into it."""
    if isinstance(embed_dict, _Embeddings):
        with exit_on_user_error():
            _check_fit(embed_dict, vocab, embedding)
    return load(embed_dict, vocab, embedding)


def read_embeddings(path: str) -> dict[str, Tensor]:
    """Read a text file: a line with the number and the size of the vectors, then a word and its vector each.

    Raises:
        UserError: the file is missing, not of this form, cut short, or has a number that is not finite.
    """
    if not os.path.isfile(path):  # reading a pipe would block
        raise UserError(f"there is no file {path} of embeddings (--encoder-embed-path, --decoder-embed-path)")
    vectors = _Embeddings(path)
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            header = re.fullmatch(r"([0-9]{1,18}) ([0-9]{1,18})\s*", file.readline(MAX_LINE))
            if header is None:
                raise UserError(
                    f"{path}, line 1: must be the number of vectors and their size, such as 20000 512"
                )
            count, size, line = int(header[1]), int(header[2]), 1
            while text := file.readline(MAX_LINE):
                line += 1
                word, *numbers = text.rstrip().split(" ")
                vectors[word] = _vector(numbers, size, f"{path}, line {line}")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text in UTF-8") from None
    if line - 1 != count:
        raise UserError(f"{path} has {line - 1} vectors, but its first line says {count}; is it cut short?")
    return vectors


def _vector(numbers: list[str], size: int, where: str) -> Tensor:
    if len(numbers) != size:
        raise UserError(f"{where}: {len(numbers)} numbers follow the word, but the first line says {size}")
    try:
        values = list(map(float, numbers))
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    vector = torch.tensor(values, dtype=torch.float32)
    if not (all(map(math.isfinite, values)) and vector.isfinite().all()):
        raise UserError(f"{where}: the vector has numbers that are not finite")
    return vector


def _check_fit(vectors: _Embeddings, vocab, embedding: nn.Embedding) -> None:
    """Raise UserError unless the vectors are as wide as the model's, and some are of its words."""
    width = next((len(vector) for vector in vectors.values()), None)
    if width is not None and width != embedding.embedding_dim:
        raise UserError(
            f"{vectors.path} has vectors of {width} numbers, and the embeddings of the model have "
            f"{embedding.embedding_dim}; change --encoder-embed-dim or --decoder-embed-dim"
        )
    if not any(vocab[index] in vectors for index in range(len(vocab))):
        raise UserError(
            f"{vectors.path} has no vector of a word of the dictionary, such as {vocab[len(vocab) - 1]}"
        )
