"""Beam search with probabilities of exactly 0, on models whose probabilities are written down."""

import math

import pytest
import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from helpers import dictionary
from torch import nn

from user_dir.guards.exhausted_beams import IMPOSSIBLE

WORDS = dictionary()
EOS, A, B, C = WORDS.eos(), *range(WORDS.nspecial, WORDS.nspecial + 3)


class Encoder(nn.Module):
    def forward_torchscript(self, net_input):
        return {"encoder_out": []}

    def reorder_encoder_out(self, encoder_out, new_order):
        return encoder_out


class Decoder(FairseqIncrementalDecoder):
    def __init__(self, table):
        super().__init__(WORDS)
        self.table = table

    def max_positions(self):
        return 100

    def forward(self, tokens, encoder_out=None, incremental_state=None):
        p = torch.zeros(len(tokens), 1, len(WORDS))
        for row, prefix in enumerate(tokens[:, 1:].tolist()):
            for token, value in self.table.get(tuple(prefix), {EOS: 1.0}).items():
                p[row, 0, token] = value
        return p, None


class Model(nn.Module):
    """Probabilities of the next token by prefix; after other prefixes, the sentence ends."""

    def __init__(self, table):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder(table)

    def get_normalized_probs(self, net_output, log_probs, sample):
        return net_output[0].log()

    def max_decoder_positions(self):
        return 100


def search(table, beam, sentences=1, max_len=6, **options):
    generator = SequenceGenerator([Model(table)], WORDS, beam_size=beam, max_len_b=max_len, **options)
    tokens = torch.full((sentences, 3), A)
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.full((sentences,), 3)}}
    return generator.generate([], sample)


def found(hypotheses):
    return [(each["tokens"].tolist(), math.exp(each["positional_scores"].sum())) for each in hypotheses]


TABLE = {(): {A: 0.75, B: 0.25}, (A,): {EOS: 0.5, C: 0.5}, (B,): {C: 1.0}}


@pytest.mark.parametrize("beam", (1, 2, 3, 5, 10))
def test_finds_every_hypothesis_that_has_a_probability(beam):
    every = [([A, EOS], 0.375), ([A, C, EOS], 0.375), ([B, C, EOS], 0.25)]
    for hypotheses in search(TABLE, beam, sentences=2, normalize_scores=False):
        actual = found(hypotheses)
        assert len(actual) == min(beam, 3)
        assert all(any(tokens == t and p == pytest.approx(q) for t, q in every) for tokens, p in actual)
        if beam >= 3:
            assert sorted(tokens for tokens, _ in actual) == sorted(tokens for tokens, _ in every)
        scores = [each["score"].item() for each in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_one_hypothesis_of_probability_one():
    (hypotheses,) = search({(): {A: 1.0}, (A,): {B: 1.0}}, beam=5)
    assert found(hypotheses) == [([A, B, EOS], 1.0)]


def test_sentences_of_a_batch_end_separately():
    table = {(): {A: 1.0}, (A,): {EOS: 0.5, B: 0.5}, (A, B): {B: 1.0}, (A, B, B): {EOS: 1.0}}
    for hypotheses in search(table, beam=4, sentences=3):
        assert sorted(tokens for tokens, _ in found(hypotheses)) == [[A, EOS], [A, B, B, EOS]]


def test_no_hypothesis_may_end_at_the_maximum_length():
    table = {(): {A: 0.75, B: 0.25}, (A,): {B: 1.0}, (B,): {B: 1.0}, (A, B): {B: 1.0}, (B, B): {B: 1.0}}
    (hypotheses,) = search(table, beam=3, max_len=2)
    (best,) = hypotheses
    assert best["tokens"].tolist() == [A, B, EOS]
    assert best["score"] == -math.inf
    assert best["positional_scores"][:2].exp().tolist() == [0.75, 1.0]
    assert best["positional_scores"][2] == -math.inf


def test_ordinary_searches_are_those_of_fairseq():
    torch.manual_seed(3)
    lprobs = torch.randn(2, 3, len(WORDS)).log_softmax(-1)
    lprobs[0, 1] = -math.inf
    scores = torch.randn(2, 3, 4)
    strategy = SequenceGenerator([Model({})], WORDS, beam_size=3).search
    for step in (0, 2):
        expected = strategy.step_of_fairseq(step, lprobs, scores)
        for actual, wanted in zip(strategy.step(step, lprobs, scores), expected):
            assert torch.equal(actual, wanted)
    lprobs[1] = -math.inf
    values, tokens, beams = strategy.step(2, lprobs, scores)
    assert (tokens[1] == EOS).all() and (values[1, :3] < IMPOSSIBLE / 2).all()
    assert beams[1, :3].tolist() == scores[1, :, 1].argsort(descending=True).tolist()
    assert torch.equal(values[0], strategy.step_of_fairseq(2, lprobs, scores)[0][0])


def test_sampling_ends_where_no_token_has_a_probability():
    table = {(): {A: 0.5, B: 0.5}, (A,): {B: 1.0}, (B,): {EOS: 1.0}, (A, B): {B: 1.0}}
    strategy = Sampling(WORDS)
    found = [tuple(h["tokens"].tolist()) for hypotheses in search(table, 4, 30, 2, search_strategy=strategy)
             for h in hypotheses]  # fmt: skip
    assert set(found) <= {(A, B, EOS), (B, EOS)} and (B, EOS) in found
