"""Translations repeat n-grams on a CPU in spite of ``--no-repeat-ngram-size``.

fairseq (0.12.2 and later) compares the end of its buffer of tokens, which is padding, instead of the end of
the translation so far, so without its CUDA extension the option has no effect. A size of 1 would forbid the
end of the sentence, too, because the same symbol stands before the first. With this guard the option does
what it says, and that symbol is no part of a translation. Unnecessary once fairseq looks at the translation.
"""

import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import Tensor

from .announcing import acted


def install() -> None:
    """Replace the search for repeated n-grams, also in TorchScript."""
    NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


def _no_repeat_ngram(self, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int):
    """See fairseq."""
    if not torch.jit.is_scripting():
        acted("repeated-ngrams", "excludes repeated n-grams on a CPU, too")
    rows, symbols = repeating(tokens[:, 1 : step + 1], self.no_repeat_ngram_size)
    lprobs[rows, symbols] = -float("inf")
    return lprobs


def repeating(tokens: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Which symbols would repeat an n-gram of this size after tokens (R, T): rows, in order, and symbols."""
    if tokens.size(1) < size:
        nothing = torch.empty([0], dtype=torch.long, device=tokens.device)
        return nothing, nothing
    seen = tokens.unfold(1, size, 1)  # (R, T − n + 1, n)
    last = tokens[:, tokens.size(1) - size + 1 :]
    rows, places = torch.where((seen[:, :, : size - 1] == last.unsqueeze(1)).all(2))
    return rows, seen[rows, places, size - 1]
