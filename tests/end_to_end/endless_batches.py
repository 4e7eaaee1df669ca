"""A program that ends while fairseq prepares batches for it; without the plugin it aborts."""

import sys
from pathlib import Path

import torch
from fairseq.data.iterators import BufferedIterator


class Batches:
    """Any number of batches, made by operations that release the interpreter's lock."""

    def __len__(self):
        return 1_000_000

    def __iter__(self):
        while True:
            yield torch.stack([torch.ones(1000) for _ in range(8)])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import user_dir.tasks  # noqa: F401

    print(next(BufferedIterator(1_000_000, Batches())).sum().item())
