"""Random tokens with the lengths of IWSLT, to train on without a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.data import Dictionary

WORDS = 10000


@dataclass(frozen=True)
class RandomCorpus:
    """Only the dictionaries of a corpus, in ``bin``, a folder, for fairseq's translation task."""

    bin: Path
    languages: tuple[str, str] = ("de", "en")

    def write(self) -> RandomCorpus:
        """Write the dictionaries."""
        dictionary = Dictionary()
        for number in range(WORDS):
            dictionary.add_symbol(f"w{number}")
        for language in self.languages:
            dictionary.save(str(self.bin / f"dict.{language}.txt"))
        return self


def batches(count: int, max_tokens: int, dictionary: Dictionary, seed: int) -> list[dict]:
    """Training batches in fairseq's form, of sentences of similar length.

    Lengths are log-normal with median 20 and mean 24 tokens, as in IWSLT 2014; source and target have the
    same.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = (20 * torch.exp(0.6 * torch.randn(60000, generator=generator))).round().clamp(3, 175).int()
    lengths = lengths.sort().values.tolist()
    groups, first = [], 0
    while first < len(lengths):
        last = first + 1
        while last < len(lengths) and lengths[last] * (last + 1 - first) <= max_tokens:
            last += 1
        groups.append(lengths[first:last][::-1])  # fairseq's batches begin with the longest
        first = last
    order = torch.randperm(len(groups), generator=generator)[:count].tolist()
    return [_batch(groups[i], dictionary, generator) for i in order]


def _batch(lengths: list[int], dictionary: Dictionary, generator: torch.Generator) -> dict:
    def tokens(left: bool) -> torch.Tensor:
        rows = torch.randint(
            dictionary.nspecial, len(dictionary), (len(lengths), max(lengths)), generator=generator
        )
        padded = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
        return rows.masked_fill_(padded.flip(1) if left else padded, dictionary.pad())

    target = tokens(left=False)
    previous = target.roll(1, dims=1)
    previous[:, 0] = dictionary.eos()
    inputs = {"src_tokens": tokens(left=True), "src_lengths": torch.tensor(lengths)}
    return {
        "id": torch.arange(len(lengths)),
        "nsentences": len(lengths),
        "ntokens": sum(lengths),
        "net_input": inputs | {"prev_output_tokens": previous},
        "target": target,
    }
