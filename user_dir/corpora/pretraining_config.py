"""How a small BERT is pretrained for the post-editor of a corpus."""

from __future__ import annotations

import math
from pathlib import Path

from .binarised import text_lengths
from .corpus import Corpus

EPOCHS = 12  # about as in configs/mlqe-pe-en-de/pretraining.yaml
MAX_TOKENS = 4096


def has_pretraining(corpus: Corpus) -> bool:
    """Whether the model of the corpus starts from one that was pretrained on the corpus."""
    return corpus.description.triplets and bool(corpus.description.pretraining)


def checkpoint_of(corpus: Corpus) -> Path:
    """Where the pretrained model is, below the root."""
    return Path("checkpoints") / corpus.name / "pretraining" / "checkpoint_best.pt"


def pretraining_settings(corpus: Corpus) -> dict[str, int]:
    """The lengths of the training and of its batches, in a config's words."""
    tokens = text_lengths(corpus.pretraining, "train").sum()
    updates = min(max(1000, math.ceil(EPOCHS * tokens / MAX_TOKENS)), 100_000)
    return {"updates": updates, "warmup": updates // 10, "max_tokens": MAX_TOKENS}
