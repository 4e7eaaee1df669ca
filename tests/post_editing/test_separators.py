"""What is masked of lines with a separator, by fairseq's task and with the guard."""

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from helpers import binarise

WORDS = [f"▁word{i}" for i in range(20)]


def lines_of(folder, symbols):
    """A dictionary, binarised lines with its last symbol in the middle, and a task's inputs and targets."""
    words = Dictionary()
    for symbol in symbols:
        words.add_symbol(symbol)
    words.save(str(folder / "dict.txt"))
    last = words.index(symbols[-1])
    lines = [[*range(4, 9 + i), last, *range(6, 12), words.eos()] for i in range(8)]
    binarise(folder / "train", lines)
    settings = {"mask_prob": 0.5, "random_token_prob": 0.2, "seed": 3}
    config = MaskedLMConfig(data=str(folder), sample_break_mode="eos", tokens_per_sample=60, **settings)
    task = MaskedLMTask.setup_task(config)
    task.load_dataset("train")
    data = task.dataset("train")
    samples = [data.collater([data[i]]) for i in range(len(data))]
    pairs = [(sample["net_input"]["src_tokens"][0], sample["target"][0]) for sample in samples]
    originals = {len(line) + 1: torch.tensor([words.bos(), *line]) for line in lines}
    return words, last, pairs, originals


@pytest.mark.parametrize("separator", ["[SEP]", "▁[SEP]"])
def test_separators_are_not_masked_and_others_as_by_fairseq(tmp_path, separator):
    words, sep, pairs, originals = lines_of(tmp_path, [*WORDS, separator])
    (tmp_path / "other").mkdir()
    _, _, by_fairseq, _ = lines_of(tmp_path / "other", [*WORDS, "▁other"])  # in the separator's place
    changed = 0
    for (source, target), (theirs, asked) in zip(pairs, by_fairseq):
        original = originals[len(source)]
        is_separator = original.eq(sep)
        assert source[is_separator].tolist() == [sep] and target[is_separator].tolist() == [words.pad()]
        changed += asked[is_separator].ne(words.pad()).sum().item()
        assert torch.equal(source[~is_separator], theirs[~is_separator])
        assert torch.equal(target[~is_separator], asked[~is_separator])
    assert changed > 0  # fairseq masks some of them
