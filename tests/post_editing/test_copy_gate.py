"""Matches and targets against slow loops over sentences."""

import random

import pytest
import torch
from editors import padded

from user_dir.post_editing.copy_gate import LONGEST_MATCH, CopyGate, Translation

PAD, EOS, SEP = 1, 2, 4


def lines(generator: random.Random, left_pad: bool):
    """Source lines, corrections, and their inputs to the decoder, of few tokens that repeat."""
    sources, targets = [], []
    for _ in range(6):
        src = [generator.randint(5, 7) for _ in range(generator.randint(1, 4))]
        mt = [generator.randint(5, 7) for _ in range(generator.randint(1, 9))]
        pe = list(mt)
        for _ in range(generator.randint(0, 3)):
            place = generator.randrange(len(pe) + 1)
            pe[place : place + generator.randint(0, 2)] = [9] * generator.randint(0, 2)
        sources.append([*src, SEP, *mt, EOS])
        targets.append([*pe, EOS])
    previous = [[EOS, *target[:-1]] for target in targets]
    return padded(sources, PAD, left_pad), padded(targets, PAD, False), padded(previous, PAD, False)


def backward(mt, written, place):
    """How many of the last tokens written stand before a place of the translation; </s> begins both."""
    before = [EOS, *mt][: place + 1]
    count = 0
    while count < min(len(before), len(written), LONGEST_MATCH) and before[-1 - count] == written[-1 - count]:
        count += 1
    return count


def forward(mt, rest, place, passed):
    """How many of the tokens to come stand at a place of the translation, each ahead of the pointer then."""
    count = 0
    while count < min(len(mt) - place, len(rest), LONGEST_MATCH) and mt[place + count] == rest[count]:
        if place + count < passed[count]:
            break
        count += 1
    return count


def passed_places(mt, written):
    """Behind which place of the translation the pointer does not go back, after each token written."""
    passed, farthest = [], 0
    for t in range(len(written)):
        runs = [backward(mt, written[: t + 1], s) for s in range(len(mt))]
        fits = [(run - 0.15 * abs(s - t), -s, run) for s, run in enumerate(runs) if run]
        best, place, run = max(fits, default=(0, 0, 0))
        if best > 0 and run >= 2:
            farthest = max(farthest, -place)
        passed.append(farthest)
    return passed


@pytest.mark.parametrize("left_pad", [True, False])
def test_matches_and_targets_equal_slow_loops(left_pad):
    gate = CopyGate(8, 1.5, SEP, PAD, EOS)
    tokens, target, previous = lines(random.Random(left_pad), left_pad)
    translation = Translation.of(tokens, SEP, PAD)
    length, _ = gate.matches(translation, previous)
    place, copied, right = gate.targets(translation, previous, target)
    seen = set()
    for row in range(len(tokens)):
        source = [token for token in tokens[row].tolist() if token != PAD]
        mt = source[source.index(SEP) + 1 :]
        start = tokens[row].tolist().index(SEP) + 1
        gold = [token for token in target[row].tolist() if token != PAD]
        assert right[row] == (gold == mt)
        passed = passed_places(mt, previous[row, : len(gold)].tolist())
        for t in range(len(gold)):
            written = previous[row, : t + 1].tolist()
            runs = [backward(mt, written, s) for s in range(len(mt))]
            assert length[row, t, start : start + len(mt)].tolist() == runs
            fits = [
                (runs[s] + forward(mt, gold[t:], s, passed[t:]) - 0.15 * abs(s - t), -s, s)
                for s in range(len(mt))
                if mt[s] == gold[t] and s >= passed[t]
            ]
            best = max(fits, default=(0, 0, 0))
            s = best[2]
            expected = best[0] > 0 and runs[s] + forward(mt, gold[t:], s, passed[t:]) >= 2
            assert copied[row, t] == expected
            if expected:
                assert place[row, t] == start + s
            seen.add(bool(expected))
    assert seen == {True, False}
    assert not length.masked_fill(translation.inside[:, None], 0).any()


def jumps_of(gate, tokens, written):
    translation = Translation.of(tokens, SEP, PAD)
    return gate._jumps(translation, *gate.matches(translation, torch.tensor([written]))[1].max(2))


def test_the_pointer_stands_behind_what_was_copied_though_it_repeats_itself():
    mt = [5, 5, 5, 6, 5, 5, 5, 6, 5, 5, 5, 5, 5, 6]
    gate = CopyGate(8, 2.0, SEP, PAD, EOS)
    tokens = torch.tensor([[7, SEP, *mt, EOS]])
    assert jumps_of(gate, tokens, [EOS, *mt]).argmax(2).tolist() == [list(range(2, 2 + len(mt) + 1))]


def test_the_pointer_does_not_go_back_behind_what_was_copied():
    """One token that is the same may be written by chance; two are copied."""
    torch.manual_seed(1)
    gate = CopyGate(8, 1.5, SEP, PAD, EOS)
    gate.jumps.data.normal_()
    tokens, previous = torch.tensor([[6, SEP, 5, 5, 6, 7, EOS]]), torch.tensor([[EOS, 9, 7, 9, 5, 6, 5]])
    state, encoded = torch.randn(1, 7, 8), torch.randn(1, 7, 8)
    pointer = gate(state, encoded, tokens, previous).pointer
    assert pointer.isfinite().int().argmax(2).tolist() == [[2, 2, 2, 2, 2, 5, 5]]
    assert pointer[0, :, -1].isfinite().all()


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_untrained_gates_copy_exactly_and_learn(alpha):
    from user_dir.entmax import entmax, entmax_loss

    torch.manual_seed(1)
    gate = CopyGate(8, alpha, SEP, PAD, EOS).double()
    tokens, target, previous = lines(random.Random(3), True)
    state, encoded = (torch.randn(*ids.shape, 8, dtype=torch.float64) for ids in (target, tokens))
    decisions = gate(state, encoded, tokens, previous)
    assert torch.equal(entmax(decisions.gate, alpha)[..., 0], torch.ones(target.shape))
    assert torch.equal(entmax(decisions.pointer, alpha).amax(-1), torch.ones(target.shape))
    place, copied, _ = gate.targets(decisions.translation, previous, target)
    loss = entmax_loss(decisions.gate, (~copied).long(), alpha).sum()
    loss = loss + entmax_loss(decisions.pointer, place.masked_fill(~copied, -100), alpha).sum()
    loss.backward()
    for name in ("query.weight", "jumps", "decision.weight"):
        grad = gate.get_parameter(name).grad
        assert grad.isfinite().all() and grad.abs().sum() > 0, name
