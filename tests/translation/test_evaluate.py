"""Translation of a split: every sentence once, with the most likely pieces, independent of batching."""

from __future__ import annotations

import pytest
import torch
from helpers import build
from tiny_splits import dictionary, translation_task

from user_dir.analysis.capture import masked_heads
from user_dir.errors import UserError
from user_dir.translation.evaluate import translate_split
from user_dir.translation.loading import Limit, Search, check_lengths, too_long
from user_dir.translation.translator import BeamSearch

LENGTHS = [4, 1, 7, 4, 2, 9, 1, 5, 4]
PAIRS = [
    ([4 + (3 * i + j) % 20 for j in range(length)], [5 + (i + 2 * j) % 19 for j in range(1 + length % 3)])
    for i, length in enumerate(LENGTHS)
]


LIMIT = 11  # pieces before </s>


@pytest.fixture(scope="module")
def model():
    return build("--max-target-positions 12").float().eval()


@torch.no_grad()
def greedy(model, source: list[int]) -> list[int]:
    """Greedy decoding with whole forward passes until ``</s>``, or up to the limit."""
    words = dictionary()
    tokens = torch.tensor([[*source, words.eos()]])
    output: list[int] = []
    while len(output) < LIMIT and (not output or output[-1] != words.eos()):
        inputs = torch.tensor([[words.eos(), *output]])
        logits = model(tokens, torch.tensor([tokens.size(1)]), inputs)[0][0, -1]
        logits[words.pad()] = float("-inf")
        if not output:  # fairseq requires at least one word
            logits[words.eos()] = float("-inf")
        output.append(int(logits.argmax()))
    return output if output[-1] != words.eos() else output[:-1]


@pytest.fixture(scope="module")
def free(model) -> list[list[int]]:
    """The greedy translation of each sentence; with a lower limit it is cut."""
    return [greedy(model, source) for source, _ in PAIRS]


def text(tokens: list[int]) -> str:
    return dictionary().string(tokens).replace("▁", "")


def translated(model, left_out=(), **settings) -> tuple[list[str], list[int]]:
    search = BeamSearch([model], translation_task(PAIRS), Search(**settings))
    return translate_split(search, "test", left_out=left_out)


@pytest.mark.parametrize("max_tokens", [10, 1000])
def test_each_sentence_has_its_most_likely_translation(model, free, max_tokens):
    texts, _ = translated(model, beam=1, max_tokens=max_tokens)
    assert texts == list(map(text, free))
    assert len(set(texts)) > 1


def test_with_masked_heads(model, free):
    with masked_heads(model, [("decoder_self", 1, 0), ("decoder_context", 0, 1)]):
        texts, _ = translated(model, beam=1)
        assert texts == [text(greedy(model, source)) for source, _ in PAIRS] != list(map(text, free))


@pytest.mark.parametrize("limit", [Limit(), Limit(0, 3), Limit(1.0, 4)])
def test_translations_that_reach_the_limit_are_counted(model, free, limit):
    texts, unfinished = translated(model, beam=1, limit=limit, max_tokens=10)
    assert min(map(len, free)) < 7 < max(map(len, free)), "some end by themselves"
    if limit.a:  # of each batch's padded source
        for translation, tokens, (source, _) in zip(texts, free, PAIRS):
            assert translation in [text(tokens[:most]) for most in range(min(LIMIT, len(source) + 5), 12)]
        changed = {number for number, tokens in enumerate(free) if texts[number] != text(tokens)}
        assert set() < changed <= {*unfinished} != {*range(len(PAIRS))}
    else:
        most = min(LIMIT, limit.b)
        assert texts == [text(tokens[:most]) for tokens in free]
        assert unfinished == [i for i, tokens in enumerate(free) if len(tokens) >= most]


def test_some_sentences_alone():
    model = build("--max-target-positions 12 --max-source-positions 9").float().eval()
    long = too_long(translation_task(PAIRS).dataset("test"), model)
    assert long == [5]
    texts, _ = translated(model, long, beam=2, max_tokens=10)
    assert len(texts) == len(PAIRS) - 1
    first, _ = translated(model, range(1, len(PAIRS)), beam=2)
    assert first == texts[:1]


def test_a_sentence_too_long_is_named():
    dataset = translation_task(PAIRS).dataset("test")
    model = build("--max-target-positions 12 --max-source-positions 9").float().eval()
    assert list(check_lengths(dataset, "test", 100, model, left_out=[5])) == [5, 3, 8, 5, 4, 0, 3, 6, 5]
    with pytest.raises(UserError, match="line 6 of test: up to 10 source tokens, but the model allows 9"):
        check_lengths(dataset, "test", 100, model)
    with pytest.raises(UserError, match="none within the model's limit"):
        check_lengths(dataset, "test", 100, model, left_out=range(len(PAIRS)))
    shorter = build("--max-target-positions 12 --max-source-positions 7").float().eval()
    with pytest.raises(UserError, match="lines 3 and 6 of test"):
        check_lengths(dataset, "test", 100, shorter)
    with pytest.raises(UserError, match="--max-tokens 8 is too small for line 6 of test, which has 10"):
        check_lengths(dataset, "test", 8, model)


def test_a_beam_fits_the_vocabulary(model):
    symbols = len(dictionary())
    for beam in (0, symbols + 1):
        with pytest.raises(UserError, match=f"--beam {beam}: give 1 to {symbols}"):
            translated(model, beam=beam)
