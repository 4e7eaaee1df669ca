"""A corpus of random tokens with the lengths of IWSLT, for training where no corpus is prepared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

WORDS = 10000


@dataclass(frozen=True)
class RandomCorpus:
    """Binarised data in the folder ``bin``, for fairseq's translation task.

    Lengths are log-normal with median 20 and mean 24 tokens, as in IWSLT 2014; source and target have the
    same.
    """

    bin: Path
    languages: tuple[str, str] = ("de", "en")

    def write(self, sentences: int = 60000, seed: int = 1) -> RandomCorpus:
        """Write dictionaries and training data."""
        dictionary = Dictionary()
        for number in range(WORDS):
            dictionary.add_symbol(f"w{number}")
        generator = torch.Generator().manual_seed(seed)
        lengths = 20 * torch.exp(0.6 * torch.randn(sentences, generator=generator))
        lengths = lengths.round().clamp(3, 175).int().tolist()
        for language in self.languages:
            dictionary.save(str(self.bin / f"dict.{language}.txt"))
            name = str(self.bin / f"train.{'-'.join(self.languages)}.{language}")
            builder = MMapIndexedDatasetBuilder(f"{name}.bin")
            for length in lengths:
                row = torch.randint(dictionary.nspecial, len(dictionary), (length,), generator=generator)
                row[-1] = dictionary.eos()
                builder.add_item(row)
            builder.finalize(f"{name}.idx")
        return self
