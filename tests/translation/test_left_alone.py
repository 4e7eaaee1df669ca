"""Sentences that a post-editor leaves alone are not searched, and the hypotheses are the same."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from post_editing import batch, build, dictionary

from user_dir.translation.left_alone import search_others

WORDS = dictionary()


def disturbed():
    model = build("--copy-gate 1.5").eval()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.decoder.copy_gate.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.data += 0.4 * noise
    return model


@pytest.mark.parametrize("longest", [20, 4])
@pytest.mark.parametrize("alone", [[], [1], [0, 2], [0, 1, 2]])
def test_only_the_others_are_searched(monkeypatch, alone, longest):
    model, sample = disturbed(), {"net_input": batch()}
    sample["net_input"].pop("target")
    scores = torch.tensor([[9.0, -9.0] if row in alone else [-9.0, 9.0] for row in range(3)])

    def of(translation, encoded):  # by what makes a row unique, since the search has its own batches
        sources = sample["net_input"]["src_tokens"].tolist()
        return scores[[sources.index(row) for row in translation.tokens.tolist()]]

    monkeypatch.setattr(model.decoder.copy_gate, "sentence_scores", of)
    search = SequenceGenerator([model], WORDS, beam_size=2, max_len_b=longest)
    expected = search.generate([model], sample)
    searched = []

    def some(given):
        searched.extend(given["net_input"]["src_tokens"].tolist())
        return search.generate([model], given)

    found = search_others(some, search, [model], sample)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0]["tokens"].tolist() == theirs[0]["tokens"].tolist()
        torch.testing.assert_close(
            ours[0]["positional_scores"], theirs[0]["positional_scores"], check_dtype=False
        )
        assert float(ours[0]["score"]) == pytest.approx(float(theirs[0]["score"]))
    lengths = {0: 4, 1: 3, 2: 7}  # of the translations, with </s>; one that would be cut is searched
    skipped = [row for row in alone if lengths[row] <= longest]
    assert len(searched) == 3 - len(skipped)
