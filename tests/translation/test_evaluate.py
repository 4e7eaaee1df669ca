"""Translation of a split: every sentence once, with the most likely pieces, independent of batching."""

from __future__ import annotations

import contextlib

import pytest
import torch
from helpers import build
from tiny_splits import dictionary, translation_task

from user_dir.analysis.capture import masked_heads
from user_dir.errors import UserError
from user_dir.translation.evaluate import translate_split
from user_dir.translation.loading import Limit, Search, too_long

LENGTHS = [4, 1, 7, 4, 2, 9, 1, 5, 4]
PAIRS = [
    ([4 + (3 * i + j) % 20 for j in range(length)], [5 + (i + 2 * j) % 19 for j in range(1 + length % 3)])
    for i, length in enumerate(LENGTHS)
]


def greedy(model, source: list[int], limit: int) -> list[int]:
    """Greedy decoding with whole forward passes until ``</s>``."""
    words = dictionary()
    tokens = torch.tensor([[*source, words.eos()]])
    found: list[int] = []
    while len(found) < limit and (not found or found[-1] != words.eos()):
        inputs = torch.tensor([[words.eos(), *found]])
        logits = model(tokens, torch.tensor([tokens.size(1)]), inputs)[0][0, -1]
        logits[words.pad()] = float("-inf")
        if not found:  # fairseq requires at least one word
            logits[words.eos()] = float("-inf")
        found.append(int(logits.argmax()) if len(found) < limit - 1 else words.eos())
    return found


@pytest.mark.parametrize("masked", [[], [("decoder_self", 1, 0), ("decoder_context", 0, 1)]])
@pytest.mark.parametrize("max_tokens", [10, 1000])
def test_each_sentence_has_its_most_likely_translation(masked, max_tokens):
    words = dictionary()
    model = build("--max-target-positions 12").float().eval()
    context = masked_heads(model, masked) if masked else contextlib.nullcontext()
    with context, torch.no_grad():
        found = translate_split(model, translation_task(PAIRS), "test", Search(beam=1, max_tokens=max_tokens))
        expected = [words.string(greedy(model, source, limit=12)) for source, _ in PAIRS]
    assert found.texts == [text.replace("▁", "") for text in expected]
    assert len(set(found.texts)) > 1


@pytest.mark.parametrize("limit", [Limit(), Limit(0, 3), Limit(0, 7), Limit(1.0, 4)])
@torch.no_grad()
def test_translations_that_reach_the_limit_are_counted(limit):
    model = build("--max-target-positions 12").float().eval()
    found = translate_split(
        model, translation_task(PAIRS), "test", Search(beam=1, limit=limit, max_tokens=10)
    )
    free = [len(greedy(model, source, limit=12)) - 1 for source, _ in PAIRS]
    assert min(free) < 7 < max(free), ("some end by themselves", free)

    def text(number: int, most: int) -> str:
        return dictionary().string(greedy(model, PAIRS[number][0], limit=most + 1)).replace("▁", "")

    if limit.a:  # of each batch's padded source
        for number, (source, _) in enumerate(PAIRS):
            assert found.texts[number] in [text(number, most) for most in range(min(11, len(source) + 5), 12)]
        changed = {number for number in range(len(PAIRS)) if found.texts[number] != text(number, 11)}
        assert changed <= {*found.unfinished} != {*range(len(PAIRS))}
    else:
        most = min(11, limit.b)
        assert found.texts == [text(number, most) for number in range(len(PAIRS))]
        assert found.unfinished == [i for i, length in enumerate(free) if length >= most]


def test_some_sentences_alone():
    model = build("--max-target-positions 12 --max-source-positions 9").float().eval()
    task = translation_task(PAIRS)
    long = too_long(task.dataset("test"), model)
    assert long == [5]
    whole = translate_split(model, task, "test", Search(beam=2, max_tokens=10), left_out=long)
    assert len(whole.texts) == len(PAIRS) - 1
    first = translate_split(model, task, "test", Search(beam=2), sentences=4)
    assert first.texts == whole.texts[:4]
    with pytest.raises(UserError, match="none within the model's limit"):
        translate_split(model, task, "test", Search(), left_out=range(len(PAIRS)))


def test_a_sentence_too_long_is_named():
    model = build("--max-target-positions 12 --max-source-positions 9").float().eval()
    with pytest.raises(UserError, match="line 6 of test: up to 10 source tokens, but the model allows 9"):
        translate_split(model, translation_task(PAIRS), "test", Search())
    shorter = build("--max-target-positions 12 --max-source-positions 7").float().eval()
    with pytest.raises(UserError, match="lines 3 and 6 of test"):
        translate_split(shorter, translation_task(PAIRS), "test", Search())
    with pytest.raises(UserError, match="--max-tokens 8 is too small for line 6 of test, which has 10"):
        translate_split(model, translation_task(PAIRS), "test", Search(max_tokens=8))
