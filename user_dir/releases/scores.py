"""The scores of a checkpoint, as evaluate.py wrote them."""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from ..corpora import Corpus
from ..corpora.checksums import sha256
from ..errors import UserError
from ..schema import number, read_object, whole

METRICS = ("bleu", "chrf", "ter")
_REMEDY = "evaluate the checkpoint again, or remove the file"


class _Metrics(Struct):
    bleu: number(0, 100)
    chrf: number(0, 100)
    ter: number(0)


class _Evaluation(_Metrics, kw_only=True):
    test_set: str
    checkpoint_sha256: str
    corpus: str
    direction: str
    sentences: whole()
    references: str
    beam: whole()
    length_penalty: number()
    bleu_signature: str
    chrf_signature: str
    ter_signature: str
    left_out_lines: list | UnsetType = UNSET
    truncated_lines: list | UnsetType = UNSET
    new_piece_penalty: number() | UnsetType = UNSET
    uncorrected: _Metrics | UnsetType = UNSET


def scores_folder(checkpoint: Path) -> Path:
    """``evaluation/CHECKPOINT`` beside a checkpoint, or ``evaluation``, where an experiment puts scores."""
    own = checkpoint.parent / "evaluation" / checkpoint.stem
    return own if own.is_dir() else own.parent


def read_scores(folder: Path, checkpoint: Path, corpus: Corpus, direction: tuple[str, str]) -> list[dict]:
    """The evaluations in a folder, in the order of the corpus's splits; none if there is no such folder.

    Raises:
        UserError: a JSON file is not an evaluation, or is one of another checkpoint, corpus or direction.
    """
    if not folder.is_dir():
        return []
    digest, order = sha256(checkpoint), list(corpus.subsets)
    found = []
    for file in sorted(folder.glob("*.json")):
        scores = read_object(file, "an evaluation by this version of evaluate.py", _Evaluation, _REMEDY)
        same = scores["corpus"] == corpus.name and scores["direction"] == "-".join(direction)
        if scores["checkpoint_sha256"] != digest or not same or scores["test_set"] not in order:
            raise UserError(
                f"{file} scores another checkpoint or corpus than {checkpoint} and {corpus.name}; evaluate "
                "the checkpoint again, or name the folder of its scores with --evaluation"
            )
        found.append(scores)
    return sorted(found, key=lambda scores: order.index(scores["test_set"]))
