"""The scores of a checkpoint, as evaluate.py wrote them."""

from __future__ import annotations

import math
from pathlib import Path

from ..corpora import Corpus
from ..corpora.checksums import checksums
from ..errors import UserError
from ..io import parse_json, read_text

METRICS = ("bleu", "chrf", "ter")
_NUMBER = (int, float)
_TYPES = {
    "test_set": str,
    "checkpoint_sha256": str,
    "corpus": str,
    "direction": str,
    "sentences": int,
    "references": str,
    "beam": int,
    "length_penalty": _NUMBER,
    **dict.fromkeys(METRICS, _NUMBER),
    **{f"{name}_signature": str for name in METRICS},
}
_OPTIONAL = {
    "left_out_lines": list,
    "truncated_lines": list,
    "new_piece_penalty": _NUMBER,
    "uncorrected": dict,
}


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
    digest, order = checksums(checkpoint, ["sha256"])["sha256"], list(corpus.subsets)
    found = []
    for file in sorted(folder.glob("*.json")):
        scores = _read(file)
        same = scores["corpus"] == corpus.name and scores["direction"] == "-".join(direction)
        if scores["checkpoint_sha256"] != digest or not same or scores["test_set"] not in order:
            raise UserError(
                f"{file} scores another checkpoint or corpus than {checkpoint} and {corpus.name}; evaluate "
                "the checkpoint again, or name the folder of its scores with --evaluation"
            )
        found.append(scores)
    return sorted(found, key=lambda scores: order.index(scores["test_set"]))


def _read(file: Path) -> dict:
    try:
        scores = parse_json(read_text(file, "the evaluation"))
    except UserError:
        raise
    except ValueError:
        scores = None
    known = scores if isinstance(scores, dict) else {}
    wrong = [key for key, kind in _TYPES.items() if not _has_type(known.get(key), kind)]
    wrong += [key for key in _TYPES if key not in wrong and not _in_range(key, known[key])]
    wrong += [key for key, kind in _OPTIONAL.items() if key in known and not _has_type(known[key], kind)]
    before = known.get("uncorrected")
    if isinstance(before, dict) and not all(_has_type(before.get(name), _NUMBER) for name in METRICS):
        wrong.append("uncorrected")
    if wrong:
        raise UserError(
            f"{file} is not an evaluation by this version of scripts/evaluate.py (look at its "
            f"{', '.join(wrong)}); evaluate the checkpoint again, or remove the file"
        )
    return known


def _in_range(key: str, value) -> bool:
    """Whether a score, or a count, is one: TER has no upper bound."""
    if key in ("bleu", "chrf"):
        return 0 <= value <= 100
    return not isinstance(value, (int, float)) or key == "length_penalty" or value >= 0


def _has_type(value, kind) -> bool:
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return not isinstance(value, (int, float)) or math.isfinite(value)
