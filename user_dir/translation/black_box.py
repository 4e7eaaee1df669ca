"""Triplets of a translation system that is treated as a black box: source, translation, reference."""

from __future__ import annotations

import logging
from pathlib import Path

from .. import models  # noqa: F401  registers our model
from ..checkpoints import load_checkpoint
from ..corpora import Corpus, stamps
from ..corpora.checksums import sha256
from ..corpora.readers import read_made_lines
from ..io import make_folder
from .direction import translation_direction
from .limits import translation_limit
from .loading import load_model
from .search import Search
from .split_search import translate_split
from .text import corpus_lines

logger = logging.getLogger(__name__)
NOTHING = "-"
"""Stands for an empty translation, and for a side that a control experiment leaves out."""


def write_triplets(checkpoint: Path, corpus: Corpus, output: Path, beam: int = 5) -> None:
    """Translate every split of a corpus but its training text; skipped if that has been done.

    Writes ``SPLIT.src``, ``SPLIT.mt`` and ``SPLIT.pe`` (the reference) to ``output``, and ``SPLIT.none``,
    whose lines are :data:`NOTHING`.

    ``checkpoint`` is of a translation model, trained on ``corpus``, which is prepared.

    Raises:
        UserError: the checkpoint does not match the corpus, or a sentence is longer than the model's limit.
    """
    state = load_checkpoint(checkpoint)
    source, target = direction = translation_direction(state, checkpoint, corpus)
    limit = translation_limit(state, corpus)
    del state
    stamp = output / "stamp.json"
    inputs = {
        "checkpoint": sha256(checkpoint),
        "corpus": stamps.fingerprint(corpus.bin / "stamp.json"),
        "beam": beam,
    }
    if stamps.is_whole(stamp, inputs):
        return logger.info("triplets: already there")
    make_folder(output)
    model, task = load_model(checkpoint, corpus, direction)
    with stamps.building(stamp, inputs) as build:
        for name, subset in corpus.subsets.items():
            if name == "train":
                continue
            hypotheses = translate_split(model, task, subset, Search(beam, limit=limit)).texts
            sides = {
                "src": list(read_made_lines(corpus.text(subset, source))),
                "mt": [line.strip() or NOTHING for line in corpus_lines(hypotheses, corpus.description)],
                "pe": list(read_made_lines(corpus.reference(subset, target))),
            }
            for side, lines in {**sides, "none": [NOTHING] * len(hypotheses)}.items():
                text = "".join(f"{line}\n" for line in lines)
                (build.folder / f"{name}.{side}").write_text(text, encoding="utf-8")
            build.report[name] = len(hypotheses)
    return None
