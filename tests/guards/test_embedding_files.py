"""Pretrained embeddings are read as they are, or refused with file and line."""

import pytest
import torch
from fairseq import utils
from helpers import dictionary
from torch import nn

from user_dir.errors import UserError
from user_dir.guards.embedding_files import read_embeddings

GOOD = "2 4\nword1 1 2 3 4\nä -0.5 1e-3 0 7\n"


@pytest.fixture
def written(tmp_path):
    def write(text: str | bytes):
        path = tmp_path / "a.vec"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def test_vectors_reach_the_model(written):
    embedding, words = nn.Embedding(len(dictionary()), 4), dictionary()
    before = embedding.weight.clone()
    utils.load_embedding(utils.parse_embedding(written(GOOD)), words, embedding)
    place = words.index("word1")
    assert embedding.weight[place].tolist() == [1, 2, 3, 4]
    others = torch.arange(len(words)) != place
    assert torch.equal(embedding.weight[others], before[others])
    assert list(read_embeddings(written(GOOD))) == ["word1", "ä"]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", ["line 1"]),
        ("word1 1 2\n", ["line 1"]),
        ("2 4\nword1 1 2 3 4\n", ["1 vectors", "2"]),
        ("999999999999 4\nword1 1 2 3 4\n", ["1 vectors", "999999999999"]),
        ("1 999999999999\nword1 1 2 3 4\n", ["line 2", "999999999999"]),
        ("1 4\nword1 1 2 3\n", ["line 2", "3 numbers"]),
        ("1 4\nword1 1 2 3 x\n", ["line 2", "'x'"]),
        ("1 4\nword1 1 2 3 nan\n", ["line 2", "finite"]),
        ("1 4\nword1 1 2 3 1e39\n", ["line 2", "finite"]),
        ("2 4\nword1 1 2 3 4\n\n", ["line 3"]),
        (b"1 4\n\xff 1 2 3 4\n", ["UTF-8"]),
    ],
)
def test_what_is_wrong_in_a_file(written, text, words):
    path = written(text)
    with pytest.raises(UserError) as caught:
        read_embeddings(path)
    for word in [path, *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["none.vec", "."])
def test_a_missing_file(tmp_path, name):
    with pytest.raises(SystemExit, match="there is no file"):
        utils.parse_embedding(str(tmp_path / name))


@pytest.mark.parametrize("text", ["1 1\nword1 1\n", "1 3\nword1 1 2 3\n", "1 4\nother 1 2 3 4\n", "0 4\n"])
def test_vectors_that_do_not_fit_the_model(written, text):
    embedding = nn.Embedding(len(dictionary()), 4)
    with pytest.raises(SystemExit, match=r"a\.vec has"):
        utils.load_embedding(utils.parse_embedding(written(text)), dictionary(), embedding)
