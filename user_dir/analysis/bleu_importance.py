"""BLEU of a model with each of its heads masked."""

from __future__ import annotations

from ..translation.scored_split import ScoredSplit
from ..translation.split_search import translate_split
from .capture import masked_heads
from .importance import head_of


def bleu_without_each_head(
    model,
    task,
    split: ScoredSplit,
    rows: list[dict],
    *,
    beam: int = 5,
    max_tokens: int = 4096,
    sentences: int | None = None,
) -> dict:
    """Add to each row of ``rows`` the ``bleu`` of the model without the row's head.

    BLEU is computed as by evaluate.py, on detokenised text as the corpus specifies.

    Args:
        model: from :func:`~.capture.load_model`.
        task: the model's task.
        split: what to translate, and how it is scored.
        rows: one per head.
        beam: beam size.
        max_tokens: batch size in tokens.
        sentences: only the first N sentences of the split; None for all.

    Returns:
        ``bleu`` of the unmasked model, and ``bleu_signature``, sacrebleu's signature.
    """

    def bleu(description: str) -> float:
        found = translate_split(
            model,
            task,
            split.subset,
            beam=beam,
            limit=split.limit,
            max_tokens=max_tokens,
            sentences=sentences,
            description=description,
        )
        return split.bleu_of(found.texts)

    whole = bleu("BLEU")
    for i, row in enumerate(rows, start=1):
        with masked_heads(model, [head_of(row)]):
            row["bleu"] = bleu(f"BLEU without head {i} of {len(rows)}")
    return {"bleu": whole, "bleu_signature": str(split.bleu.get_signature())}
