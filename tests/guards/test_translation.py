"""fairseq's search with probabilities of exactly 0, repeated n-grams and blank lines."""

import functools
import math

import pytest
import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import BeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from helpers import batch, build, dictionary
from torch import nn

from user_dir.decoding.generator import FastGenerator
from user_dir.guards.translation import IMPOSSIBLE, repeating

WORDS = dictionary()
EOS, A, B, C = WORDS.eos(), *range(WORDS.nspecial, WORDS.nspecial + 3)

# ---------------------------------------------------------------------------------- exhausted beams


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


def scored(hypotheses):
    return [
        (hypothesis["tokens"].tolist(), math.exp(hypothesis["positional_scores"].sum()))
        for hypothesis in hypotheses
    ]


@pytest.mark.parametrize("beam", (1, 2, 3, 10))
def test_finds_every_hypothesis_that_has_a_probability(beam):
    table = {(): {A: 0.75, B: 0.25}, (A,): {EOS: 0.5, C: 0.5}, (B,): {C: 1.0}}
    every = [([A, EOS], 0.375), ([A, C, EOS], 0.375), ([B, C, EOS], 0.25)]
    for hypotheses in search(table, beam, sentences=2, normalize_scores=False):
        actual = scored(hypotheses)
        assert len(actual) == min(beam, 3)
        assert all(any(tokens == t and p == pytest.approx(q) for t, q in every) for tokens, p in actual)
        if beam >= 3:
            assert sorted(tokens for tokens, _ in actual) == sorted(tokens for tokens, _ in every)
        scores = [hypothesis["score"].item() for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_no_hypothesis_may_end_at_the_maximum_length():
    table = {(): {A: 0.75, B: 0.25}, (A,): {B: 1.0}, (B,): {B: 1.0}, (A, B): {B: 1.0}, (B, B): {B: 1.0}}
    ((best,),) = search(table, beam=3, max_len=2)
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
    its_step = BeamSearch.step.__wrapped__
    for step in (0, 2):
        expected = its_step(strategy, step, lprobs, scores)
        for actual, wanted in zip(strategy.step(step, lprobs, scores), expected):
            assert torch.equal(actual, wanted)
    lprobs[1] = -math.inf
    values, tokens, beams = strategy.step(2, lprobs, scores)
    assert (tokens[1] == EOS).all() and (values[1, :3] < IMPOSSIBLE / 2).all()
    assert beams[1, :3].tolist() == scores[1, :, 1].argsort(descending=True).tolist()
    assert torch.equal(values[0], its_step(strategy, 2, lprobs, scores)[0][0])


def test_sampling_ends_where_no_token_has_a_probability():
    table = {(): {A: 0.5, B: 0.5}, (A,): {B: 1.0}, (B,): {EOS: 1.0}, (A, B): {B: 1.0}}
    sampled = search(table, 4, 30, 2, search_strategy=Sampling(WORDS))
    tokens = {tuple(hypothesis["tokens"].tolist()) for hypotheses in sampled for hypothesis in hypotheses}
    assert tokens <= {(A, B, EOS), (B, EOS)} and (B, EOS) in tokens


# --------------------------------------------------------------------------------- repeated n-grams


def slow(tokens: list[int], size: int) -> set[int]:
    """The symbols that would repeat an n-gram after the tokens."""
    seen = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    last = tuple(tokens[len(tokens) - size + 1 :])
    return {symbol for symbol in range(10) if (*last, symbol) in seen and len(last) == size - 1}


@pytest.mark.parametrize(("size", "length"), [(1, 1), (1, 30), (2, 2), (2, 9), (5, 5), (5, 9), (5, 30)])
def test_symbols_that_would_repeat_an_ngram(size, length):
    tokens = torch.randint(4, 7, (12, length), generator=torch.Generator().manual_seed(length))
    rows, symbols = repeating(tokens, size)
    assert torch.equal(rows, rows.sort().values)
    assert [set(symbols[rows == row].tolist()) for row in range(12)] == [
        slow(sentence, size) for sentence in tokens.tolist()
    ]


def test_fairseqs_search_looks_at_the_translation_and_not_at_the_padding_behind_it():
    block = NGramRepeatBlock(2, use_extension=False)
    tokens = torch.tensor([[2, 5, 6, 5, 1, 1], [2, 5, 6, 7, 1, 1]])
    blocked = block(tokens, torch.zeros(2, 8), 1, 2, 3)
    assert blocked[0].tolist() == [0, 0, 0, 0, 0, 0, -torch.inf, 0]
    assert not blocked[1].any()
    assert not block(tokens, torch.zeros(2, 8), 1, 2, 1).any()  # shorter than an n-gram
    first = NGramRepeatBlock(1, use_extension=False)(torch.tensor([[2, 5, 1, 1]]), torch.zeros(1, 8), 1, 1, 1)
    assert first[0].tolist() == [0, 0, 0, 0, 0, -torch.inf, 0, 0], "the symbol before it may end the sentence"


# -------------------------------------------------------------------------------------- blank lines

KINDS = [FastGenerator, SequenceGenerator, SequenceGeneratorWithAlignment]


@functools.cache
def model():
    return build("--max-target-positions 50").eval()


def with_blank(left_pad: bool = True) -> dict:
    """A batch whose second source is blank."""
    sample = {"net_input": batch(left_pad)}
    sample["target"] = sample["net_input"].pop("target")
    source = sample["net_input"]["src_tokens"]
    source[1] = WORDS.pad()
    source[1, -1 if left_pad else 0] = EOS
    sample["net_input"]["src_lengths"][1] = 1
    return sample


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left_pad", [True, False])
def test_blank_sources_have_blank_translations(kind, left_pad):
    generator = kind([model()], WORDS, beam_size=2, max_len_b=5)
    blank, others = generator.generate([model()], with_blank(left_pad)), batch(left_pad)
    target = others.pop("target")
    whole = generator.generate([model()], {"net_input": others, "target": target})
    (empty,) = blank[1]
    assert empty["tokens"].tolist() == [EOS]
    assert (float(empty["score"]), empty["positional_scores"].tolist()) == (0, [0])
    assert len(whole[1][0]["tokens"]) > 1, "the same row with a text"
    for row in (0, 2):
        assert [hypothesis["tokens"].tolist() for hypothesis in blank[row]] == [
            hypothesis["tokens"].tolist() for hypothesis in whole[row]
        ]


def test_a_prescribed_beginning_is_continued():
    generator = FastGenerator([model()], WORDS, beam_size=2, max_len_b=5)
    continued = generator.generate([model()], with_blank(), prefix_tokens=torch.tensor([[5], [6], [7]]))
    assert continued[1][0]["tokens"][0] == 6 and len(continued[1]) == 2
