"""BLEU of a model with each of its heads masked in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..translation.scoring import make_bleu
from .capture import masked_heads, translations
from .importance import head_of


def bleu_without_each_head(
    model,
    task,
    samples: Callable[[str], Iterable[dict]],
    rows: list[dict],
    references: Path,
    scheme: str,
    beam: int,
) -> dict:
    """Give each row of ``rows`` its ``bleu``: that of the model without the row's head.

    Args:
        model: what :func:`~.capture.load_model` gives.
        task: its task.
        samples: gives the batches, for a name of the pass that a progress bar can show.
        rows: of the heads.
        references: file of the target text, its name ending in the language.
        scheme: by which pieces are joined, of :data:`~.words.SCHEMES`.
        beam: beam size.

    Returns:
        ``bleu`` of the whole model, and ``bleu_signature``, sacrebleu's.
    """
    expected = references.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    bleu = make_bleu(references.suffix.lstrip("."))

    def score(description: str) -> float:
        texts = translations(model, task, samples(description), scheme, beam)
        return bleu.corpus_score(texts, [expected[: len(texts)]]).score

    whole = score("BLEU")
    for i, row in enumerate(rows, start=1):
        with masked_heads(model, [head_of(row)]):
            row["bleu"] = score(f"BLEU without head {i} of {len(rows)}")
    return {"bleu": whole, "bleu_signature": str(bleu.get_signature())}
