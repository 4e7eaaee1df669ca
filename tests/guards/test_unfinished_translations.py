"""Translations that reach fairseq's limit of length are reported once."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from helpers import dictionary

import user_dir.models  # noqa: F401  installs the guards
from user_dir.decoding.generator import FastGenerator
from user_dir.guards.unfinished_translations import unfinished

KINDS = [FastGenerator, SequenceGenerator, SequenceGeneratorWithAlignment]


@pytest.mark.parametrize("kind", KINDS)
def test_one_warning(searched, kind, caplog):
    generator, sample, found = searched(kind, True, max_len_b=2)
    assert any(unfinished(generator, sample, found))
    assert len(caplog.records) == 1 and "limit of 2 pieces" in caplog.text
    generator.generate(list(generator.model.models), sample)
    assert len(caplog.records) == 1
    assert "--max-len-b" in caplog.text
    caplog.clear()
    searched(kind, max_len_b=2)
    assert not caplog.records
    generator, _, _ = searched(kind, True, max_len_b=500, min_len=49)  # of a model with 50 positions
    assert f"limit of {generator.max_len - 1} pieces" in caplog.text and "--max-len-b" not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_what_ends_by_itself_is_not_reported(searched, kind, caplog):
    """The lengths of a free search decide which ones a limit cuts."""
    _, _, free = searched(kind, max_len_b=49)
    lengths = [len(each[0]["tokens"]) - 1 for each in free]
    longest = sorted(lengths)[0] + 1
    generator, sample, found = searched(kind, True, max_len_b=longest)
    for cut, length, each in zip(unfinished(generator, sample, found), lengths, found):
        assert cut == (len(each[0]["tokens"]) > longest)
        assert not (cut and length < longest and len(each[0]["tokens"]) == length + 1)
    caplog.clear()
    generator.match_source_len = True  # then the length is prescribed
    assert not any(unfinished(generator, sample, found))


def test_a_search_that_was_given_up_is_unfinished(searched):
    generator, sample, found = searched(FastGenerator, max_len_b=49)
    found[0][0] |= {"score": torch.tensor(-float("inf")), "tokens": torch.tensor([5, 2])}
    assert unfinished(generator, sample, found)[0]


def test_validation_reports_a_limit_below_the_references(validate, caplog):
    words = dictionary()
    generator = SimpleNamespace(max_len_a=0, max_len_b=3, max_len=100, match_source_len=False)

    def validated(pieces: int):
        source, target = torch.tensor([4, words.eos()]), torch.tensor([5] * pieces + [words.eos()])
        return validate(words, generator, "en", source, target, target)[0]

    validated(3)
    assert not caplog.records
    generator.tells_unfinished = True
    task = validated(4)
    assert len(caplog.records) == 1 and "4 pieces" in caplog.text
    assert not task._checks_limit
