"""Sentences that a post-editor leaves alone are not searched, and the hypotheses are the same."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from editors import batch, build, dictionary

from user_dir.translation import left_alone
from user_dir.translation.left_alone import search_others

WORDS = dictionary()
SEPARATOR = WORDS.index("▁[SEP]")


def disturbed(seed=2, by=0.4):
    model = build("--copy-gate 1.5").eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.decoder.copy_gate.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.data += by * noise
    return model


def triplets():
    net_input = batch()
    net_input.pop("target")
    return {"net_input": net_input}


def searched(search, model, sample):
    """What is found, and how many sentences the search itself has seen."""
    seen = []

    def some(given):
        seen.extend(given["net_input"]["src_tokens"].tolist())
        return search.generate([model], given)

    return search_others(some, search, [model], sample), len(seen)


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0]["tokens"].tolist() == theirs[0]["tokens"].tolist()
        scores = [each[0]["positional_scores"] for each in (ours, theirs)]
        torch.testing.assert_close(*scores, check_dtype=False, rtol=1e-6, atol=1e-6)
        assert float(ours[0]["score"]) == pytest.approx(float(theirs[0]["score"]), abs=1e-6)


@pytest.mark.parametrize("longest", [20, 4])
@pytest.mark.parametrize("alone", [[], [1], [0, 2], [0, 1, 2]])
def test_only_the_others_are_searched(monkeypatch, alone, longest):
    model, sample = disturbed(), triplets()
    scores = torch.tensor([[9.0, -9.0] if row in alone else [-9.0, 9.0] for row in range(3)])

    def of(translation, encoded):  # by what makes a row unique, since the search has its own batches
        sources = sample["net_input"]["src_tokens"].tolist()
        return scores[[sources.index(row) for row in translation.tokens.tolist()]]

    monkeypatch.setattr(model.decoder.copy_gate, "sentence_scores", of)
    search = SequenceGenerator([model], WORDS, beam_size=2, max_len_b=longest)
    expected = search.generate([model], sample)
    found, count = searched(search, model, sample)
    assert_same(found, expected)
    lengths = {0: 4, 1: 3, 2: 7}  # of the translations, with </s>; one that would be cut is searched
    assert count == 3 - sum(lengths[row] <= longest for row in alone)


@pytest.mark.parametrize(
    "options",
    [{}, {"min_len": 4}, {"len_penalty": 0.3}, {"normalize_scores": False}, {"max_len_b": 4}],
    ids=str,
)
def test_a_greedy_search_is_spared_where_it_repeats_the_translation(options, monkeypatch):
    monkeypatch.setattr(left_alone, "TOKENS", 8)  # a pass for one or two sentences
    repeated, other = 0, 0
    for seed in range(12):
        model, sample = disturbed(seed, by=0.25), triplets()
        model.decoder.copy_gate.sentence.bias.data += torch.tensor([-9.0, 9.0])  # no sentence is left alone
        options = {"max_len_b": 20, **options}
        search = SequenceGenerator([model], WORDS, beam_size=1, **options)
        expected = search.generate([model], sample)
        found, count = searched(search, model, sample)
        assert_same(found, expected)
        rows = sample["net_input"]["src_tokens"].tolist()
        given = [row[row.index(SEPARATOR) + 1 :] for row in rows]
        # without the end that is too early, a hypothesis of no probability may be what is left
        same = sum(
            each[0]["tokens"].tolist() == mt and each[0]["score"].isfinite().item()
            for each, mt in zip(expected, given)
        )
        assert count == 3 - same
        repeated, other = repeated + same, other + count
    assert repeated > 3 and other > 3


@pytest.mark.parametrize("options", [{"beam_size": 2}, {"unk_penalty": 1.0}, {"temperature": 2.0}], ids=str)
def test_other_searches_are_not_spared(options):
    model, sample = build("--copy-gate 1.5").eval(), triplets()  # which repeats every translation
    model.decoder.copy_gate.sentence.bias.data += torch.tensor([-9.0, 9.0])
    assert searched(SequenceGenerator([model], WORDS, beam_size=1), model, sample)[1] == 0
    assert searched(SequenceGenerator([model], WORDS, **{"beam_size": 1, **options}), model, sample)[1] == 3
