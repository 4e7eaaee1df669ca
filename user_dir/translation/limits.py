"""The limit of the length of translations, where the search cuts them."""

from __future__ import annotations

from dataclasses import dataclass

from ..corpora import Corpus
from ..corpora.binarised import sentence_lengths
from ..errors import UserError
from ..io import shown

MIN_DEFAULT = 200  # pieces; fairseq's --max-len-b
RELEASED = "max_len_b"  # where a release's checkpoint has its corpus's limit, in extra_state


@dataclass(frozen=True)
class Limit:
    """A translation ends after ``a`` times the source and ``b`` pieces: fairseq's ``--max-len-a`` and ``-b``.

    The source is counted in pieces with ``</s>``, and padded to the longest of its batch.
    """

    a: float = 0.0
    b: int = MIN_DEFAULT

    def within(self, positions: int) -> Limit:
        """The same for a model with so many positions, the last of which is for the end."""
        return self if self.b < positions - 1 else Limit(0.0, positions - 1)

    def __str__(self) -> str:
        times = f"{self.a:g} × source + " if self.a else ""
        return f"the limit of {times}{self.b} pieces"


def translation_limit(
    state: dict, corpus: Corpus, max_len_a: float | None = None, max_len_b: int | None = None
) -> Limit:
    """The limit that is asked for, or that of the corpus: the longest side of a training pair, at least 200.

    ``state`` is the model's checkpoint; that of a release names the limit, since it has no training pairs.

    Raises:
        UserError: it leaves no room for a translation.
    """
    if max_len_b is None:
        released = (state.get("extra_state") or {}).get(RELEASED)
        max_len_b = max(MIN_DEFAULT, longest_side(corpus), released if isinstance(released, int) else 0)
    if max_len_b < 1 and not (max_len_a or 0) > 0:
        raise UserError(f"max_len_b of the search must be at least 1, not {shown(max_len_b)}")
    return Limit(max_len_a or 0.0, max_len_b)


def longest_side(corpus: Corpus) -> int:
    """Pieces of the longest side of a training pair, without ``</s>``; 0 if there is no training text."""
    pair = corpus.languages
    if not (corpus.bin / f"train.{'-'.join(pair)}.{pair[0]}.idx").is_file():
        return 0
    lengths = [sentence_lengths(corpus.bin, "train", pair, side) for side in pair]
    return max((int(each.max()) for each in lengths if len(each)), default=1) - 1
