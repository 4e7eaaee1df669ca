"""What repeats an n-gram, against a slow search for all that were seen."""

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock

import user_dir.models  # noqa: F401  installs the guards
from user_dir.guards.repeated_ngrams import repeating


def slow(tokens: list[int], size: int) -> set[int]:
    """The symbols that would repeat an n-gram after the tokens."""
    seen = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    last = tuple(tokens[len(tokens) - size + 1 :])
    return {symbol for symbol in range(10) if (*last, symbol) in seen and len(last) == size - 1}


@pytest.mark.parametrize("size", (1, 2, 3, 5))
@pytest.mark.parametrize("length", (0, 1, 2, 4, 9, 30))
def test_symbols_that_would_repeat_an_ngram(size, length):
    tokens = torch.randint(4, 7, (12, length), generator=torch.Generator().manual_seed(length))
    rows, symbols = repeating(tokens, size)
    assert torch.equal(rows, rows.sort().values)
    found = [set(symbols[rows == row].tolist()) for row in range(12)]
    assert found == [slow(each, size) for each in tokens.tolist()]


@pytest.mark.parametrize("scripted", (False, True))
def test_fairseqs_search_looks_at_the_translation_and_not_at_the_padding_behind_it(scripted):
    block = NGramRepeatBlock(2, use_extension=False)
    block = torch.jit.script(block) if scripted else block
    tokens = torch.tensor([[2, 5, 6, 5, 1, 1], [2, 5, 6, 7, 1, 1]])
    found = block(tokens, torch.zeros(2, 8), 1, 2, 3)
    assert found[0].tolist() == [0, 0, 0, 0, 0, 0, -torch.inf, 0]
    assert not found[1].any()


def test_the_symbol_before_the_first_may_end_the_translation():
    found = NGramRepeatBlock(1, use_extension=False)(torch.tensor([[2, 5, 1, 1]]), torch.zeros(1, 8), 1, 1, 1)
    assert found[0].tolist() == [0, 0, 0, 0, 0, -torch.inf, 0, 0]
