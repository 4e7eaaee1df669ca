"""Sentences longer than a model's limit: the message, and what is left out."""

import logging
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.data import ConcatDataset
from tiny_splits import translation_task

from user_dir.errors import UserError, first_few

LENGTHS = [4, 11, 7, 4, 2, 12, 1, 5, 4]  # </s> comes on top
PAIRS = [([4 + i % 20 for i in range(length)], [5, 6][: 1 + length % 2]) for length in LENGTHS]


def batches(limit=(9, 9), pairs=PAIRS, subset="test", dataset=None, **settings):
    task = translation_task(pairs, subset)
    dataset = dataset or task.dataset(subset)
    return task.get_batch_iterator(dataset, max_positions=limit, **{"max_tokens": 100, **settings})


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ((12, 9), r"line 6 of test has 13 source and 2 target tokens, more than 12 source or 9 target; "),
        ((9, 9), r"lines 2 and 6 of test have more than 9 source or 9 target tokens \(line 2 has 12 source"),
        ((1, 9), r"lines 1, 2, 3, 4, 5 and 4 more of test have more than 1 source"),
        ((99, 2), r"lines 2, 3, 7 and 8 of test have more than 99 source or 2 target"),
    ],
)
def test_what_is_too_long_is_named(limit, message):
    with pytest.raises(UserError, match=message) as told:
        batches(limit)
    assert "--skip-invalid-size-inputs-valid-test" in str(told.value)
    assert "--truncate-source" in str(told.value)


def test_what_fits_is_taken_without_a_word(caplog):
    with caplog.at_level(logging.WARNING):
        found = [number for batch in batches((13, 3)).next_epoch_itr() for number in batch["id"].tolist()]
    assert sorted(found) == list(range(len(PAIRS)))
    assert not caplog.records


def test_what_training_leaves_out_is_counted(caplog):
    with caplog.at_level(logging.WARNING):
        iterator = batches(ignore_invalid_inputs=True, subset="train")
    found = [number for batch in iterator.next_epoch_itr() for number in batch["id"].tolist()]
    assert sorted(found) == [number for number, length in enumerate(LENGTHS) if length < 9]
    (record,) = caplog.records
    assert "lines 2 and 6 of train" in record.message and record.message.endswith("left out, 2 of 9")


def test_training_needs_a_sentence_that_fits():
    with pytest.raises(UserError, match=r"lines 1, 2, 3, 4, 5 and 4 more of train .* leaves no sentence"):
        batches((1, 1), ignore_invalid_inputs=True, subset="train")


def test_a_batch_must_have_room_for_a_sentence():
    with pytest.raises(
        UserError, match=r"lines 2 and 6 of test have more than the 10 of a batch .*--max-tokens"
    ):
        batches((99, 99), max_tokens=10)


def test_a_sentence_typed_in_has_no_number():
    task = translation_task(PAIRS)
    tokens = [pair.long() for pair in task.dataset("test").src]
    typed = task.build_dataset_for_inference(tokens, task.dataset("test").src_sizes)
    with pytest.raises(UserError, match="a sentence of the input has 12 source tokens, more than 9 source"):
        batches(dataset=typed)


def test_numbers_in_several_files_are_not_lines():
    task = translation_task(PAIRS)
    dataset = task.dataset("test")
    dataset.src = ConcatDataset([dataset.src, []])
    with pytest.raises(UserError, match=r"samples 2 and 6 of test have more than .* \(sample 2 has"):
        task.get_batch_iterator(dataset, max_tokens=100, max_positions=(9, 9))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([2], "line 3"),
        ([7, 2], "lines 3 and 8"),
        ([0, 1, 2, 3, 4], "lines 1, 2, 3, 4 and 5"),
        (list(range(1, 2001)), "lines 2, 3, 4, 5, 6 and 1,995 more"),
    ],
)
def test_the_first_few(numbers, text):
    assert first_few(numbers) == text


@pytest.mark.parametrize("disabled", [False, True])
def test_validation_data_is_checked_before_a_training_loads_anything(disabled):
    checked = []
    dataset = SimpleNamespace(
        disable_validation=disabled, combine_valid_subsets=False, valid_subset="valid,valid1"
    )

    def check(subset):
        checked.append(subset)
        if subset == "valid1":
            batches(subset=subset)

    trainer = SimpleNamespace(cfg=SimpleNamespace(dataset=dataset), get_valid_iterator=check)
    with pytest.raises((SystemExit, AttributeError)) as ended:
        checkpoint_utils.load_checkpoint(None, trainer)
    if disabled:
        assert not checked and ended.type is AttributeError, "it went on"
    else:
        assert checked == ["valid", "valid1"] and ended.type is SystemExit
        assert "lines 2 and 6 of valid1" in ended.value.code
