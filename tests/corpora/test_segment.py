import pytest
from tiny import ENGLISH, GERMAN

from user_dir.corpora.learning import suitable_size, train_model
from user_dir.corpora.segment import segment, vocabulary
from user_dir.errors import UserError

TEXT = (GERMAN + ENGLISH) * 5


@pytest.fixture
def model(tmp_path):
    train_model(TEXT, tmp_path / "spm.model", 60)
    return tmp_path / "spm.model"


def test_joined_pieces_equal_the_text(model):
    pieces = list(segment(TEXT, model, 2))
    assert len(pieces) == len(TEXT)
    assert ["".join(line.split(" ")).replace("▁", " ")[1:] for line in pieces] == TEXT


def test_the_vocabulary_has_its_size(model):
    assert len(model.with_suffix(".vocab").read_bytes().decode().split("\n")[:-1]) == 60
    pieces = vocabulary(model)
    assert len(pieces) == len(set(pieces)) == 60 - 3  # without <unk>, <s>, </s>
    assert not {"<unk>", "<s>", "</s>"} & set(pieces)


def test_coverage_keeps_rare_characters(tmp_path):
    train_model([*TEXT * 100, "☃"], tmp_path / "spm.model", 60)
    assert "☃" in vocabulary(tmp_path / "spm.model")


def test_unicode_separators_do_not_split_a_line(model):
    assert len(list(segment(["The\u2028dog", "sleeps\x85."], model, 1))) == 2


def test_too_large_a_vocabulary_is_refused_with_the_largest_size(tmp_path):
    with pytest.raises(UserError, match=r"--vocab-size \d+ or less") as caught:
        train_model(TEXT, tmp_path / "spm.model", 5000)
    largest = int(str(caught.value).split("--vocab-size ")[1].split()[0])
    train_model(TEXT, tmp_path / "spm.model", largest)
    with pytest.raises(UserError):
        train_model(TEXT, tmp_path / "spm.model", largest + 1)


def test_too_small_a_vocabulary_is_refused_with_the_smallest_size(tmp_path):
    with pytest.raises(UserError, match=r"--vocab-size \d+ or more") as caught:
        train_model(TEXT, tmp_path / "spm.model", 5)
    smallest = int(str(caught.value).split("--vocab-size ")[1].split()[0])
    train_model(TEXT, tmp_path / "spm.model", smallest)
    with pytest.raises(UserError):
        train_model(TEXT, tmp_path / "spm.model", smallest - 1)


@pytest.mark.parametrize(
    ("pairs", "recipe"), [(29_000, 6000), (50_000, 8000), (160_239, 10_000), (4_500_000, 32_000)]
)
def test_a_suitable_size_is_near_the_recipes(pairs, recipe):
    assert 0.8 < suitable_size(pairs) / recipe < 1.25
    assert suitable_size(pairs) >= suitable_size(pairs // 2)
