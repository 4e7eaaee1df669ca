"""Exact search finds what an enumeration of all translations finds."""

import itertools
import math

import pytest
import torch
from helpers import build, dictionary

from user_dir.translation.exact_search import most_probable

WORDS = dictionary()
EOS, PAD = WORDS.eos(), WORDS.pad()
SOURCES = [torch.tensor(tokens) for tokens in ([5, 9, EOS], [7, EOS], [4, 20, 11, 6, EOS])]
MAX_WORDS = 2  # words of a translation


def model_of(flags, scale, eos=0.0):
    """A model whose scores are multiplied, with ``eos`` added to that of the end of a sentence."""
    model = build(f"--max-target-positions {MAX_WORDS + 1} {flags}").eval()
    forward = model.decoder.output_layer

    def output_layer(features):
        scores = forward(features) * scale
        scores[..., EOS] += eos
        return scores

    model.decoder.output_layer = output_layer
    return model


@torch.no_grad()
def enumerated(model, source):
    """log p of every translation of up to MAX_WORDS words, by its tokens."""
    words = [word for word in range(len(WORDS)) if word not in (EOS, PAD)]
    found = {}
    for length in range(MAX_WORDS + 1):
        every = (
            torch.tensor(list(itertools.product(words, repeat=length))).view(len(words) ** length, -1).long()
        )
        target = torch.cat([every, torch.full((len(every), 1), EOS)], 1)
        inputs = torch.cat([target[:, -1:], every], 1)
        sources = source.expand(len(every), -1)
        output = model(sources, torch.full((len(every),), len(source)), inputs)
        log_p = model.get_normalized_probs(output, log_probs=True)
        sums = log_p.gather(2, target[..., None]).squeeze(2).sum(1)
        found.update(zip(map(tuple, target.tolist()), sums.tolist()))
    return found


@pytest.mark.parametrize(
    ("flags", "scale", "eos"),
    [("", 1, 0.0), ("", 4, 1.0), ("--output-alpha 1.5", 2, 0.0), ("--output-alpha 2", 1, 1.0)],
)
def test_finds_the_best_of_all_translations(flags, scale, eos):
    model = model_of(flags, scale, eos)
    for source in SOURCES:
        every = enumerated(model, source)
        best = max(every, key=every.get)
        assert every[best] > -math.inf
        for batch in (1, 7, 64):
            found = most_probable(model, source, batch=batch)
            assert found.exact and tuple(found.tokens) == best
            assert found.log_p == pytest.approx(every[best], abs=1e-5)
            assert found.empty_log_p == pytest.approx(every[EOS,], abs=1e-5)
            assert found.is_empty == (best == (EOS,))
        known = sorted(every, key=every.get)[-2]
        hinted = most_probable(model, source, known=(list(known), every[known]), batch=7)
        assert (
            tuple(hinted.tokens) == best and hinted.expanded <= most_probable(model, source, batch=7).expanded
        )


def test_some_modes_are_empty_and_others_not():
    empty = most_probable(model_of("", 1, 3.0), SOURCES[0])
    assert empty.is_empty and empty.log_p == empty.empty_log_p
    never = most_probable(model_of("--output-alpha 1.5", 1, -30.0), SOURCES[0])
    assert never.empty_log_p == -math.inf


def test_gives_up_after_too_many_prefixes():
    model = model_of("", 1, -3.0)
    whole = most_probable(model, SOURCES[0], batch=8)
    assert whole.exact and whole.expanded > 20
    found = most_probable(model, SOURCES[0], batch=8, most_expansions=10)
    assert not found.exact and found.expanded <= 10
    assert found.log_p <= whole.log_p
