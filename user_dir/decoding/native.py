"""Translation on a CPU as one call into C++ (``search.h``)."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..entmax.native import INTEGER, POINTER, NativeKernels, addresses, asked_backend

if TYPE_CHECKING:
    from .weights import Weights

REAL = ctypes.c_double

kernels = NativeKernels(
    Path(__file__).with_name("search.cpp"),
    with_torch=False,
    packed_bytes=(INTEGER, [INTEGER] * 3),
    pack=(None, [POINTER] * 2 + [INTEGER] * 3 + [POINTER] * 2),
    multiply=(None, [POINTER] * 2 + [INTEGER, POINTER, INTEGER]),
    search=(INTEGER, [POINTER] * 4),
    use_threads=(None, [INTEGER]),
)
DTYPES = (torch.float32, torch.float64)


def available() -> bool:
    """Whether there is a C++ compiler, or its output, and ``ENTMAX_BACKEND`` does not turn it off."""
    return asked_backend() != "reference" and kernels.available()


def structure(name: str, **fields: type) -> type[ctypes.Structure]:
    """A structure of C++ with these fields."""
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


Settings = structure(
    "Settings",
    beam=INTEGER,  # K, hypotheses per sentence
    longest=INTEGER,  # most positions of a translation, not counting its end
    shortest=INTEGER,
    begin=INTEGER,  # the symbol before the first position
    end=INTEGER,
    padding=INTEGER,
    unknown=INTEGER,  # the symbol whose log-probability is lowered by the penalty
    unknown_penalty=REAL,
    normalised=INTEGER,  # scores are divided by (length with the end) ** length_penalty
    length_penalty=REAL,
    ngram=INTEGER,  # no n-gram of this many symbols may repeat; 0 allows all
    temperature=REAL,  # logits are divided by it
    banned=POINTER,  # padding, then the suppressed symbols, then the end
    bans=INTEGER,
)
"""What ``fairseq-generate`` was asked for; ``banned`` and ``bans`` are filled in by :func:`search`."""

_Batch = structure(
    "Batch", symbols=POINTER, starts=POINTER, sentences=INTEGER, prefix=POINTER, prefix_length=INTEGER
)
_Results = structure(
    "Results",
    **dict.fromkeys(("counts", "lengths", "scores", "symbols", "positional", "attended"), POINTER),
    source=INTEGER,
)


def search(
    weights: Weights,
    source: Tensor,
    settings: ctypes.Structure,
    suppressed: list[int],
    prefix: Tensor | None = None,
    aligns: bool = False,
) -> list[list[dict[str, Tensor]]]:
    """The K best translations found for each of B sentences in fairseq's form, best first.

    A prefix, forbidden n-grams or a sparse output may leave fewer; if they leave none, the result is the most
    probable unfinished one, with the score −∞.

    Args:
        weights: of the model.
        source: int64 (B, S), padded on either side.
        settings: :data:`Settings`.
        suppressed: symbols that translations may not contain after the P positions of ``prefix``.
        prefix: the tokens that translations must begin with, int64 (B, P), padded at the end, or None.
        aligns: ``attention`` (S, T) is the context attention of the last layer, mean over heads; otherwise,
            and in a model without context attention, it is empty.

    Raises:
        ValueError: no translation was found, because the model's scores are not finite; or a source token is
            outside of the vocabulary, or a length above the model's limit.
        MemoryError: memory is too small for so many sentences.
    """
    there = source.ne(settings.padding)
    tokens, lengths = source[there], there.sum(1)
    if not bool(((tokens >= 0) & (tokens < weights.symbols)).all()):
        raise ValueError(f"a source token is none of the {weights.symbols} of the model")
    sentences, longest, width = len(source), int(lengths.max()), settings.longest + 1
    for count, most in zip((longest, width), weights.longest):
        if count > most:
            raise ValueError(f"{count} tokens are more than the model's {most} positions")
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    prefix = None if prefix is None else prefix.long().contiguous()
    prefix_length = 0 if prefix is None else prefix.size(1)
    batch = _Batch(*addresses(tokens, starts), sentences, *addresses(prefix), prefix_length)

    banned = torch.tensor([settings.padding, *suppressed, settings.end])
    settings.banned, settings.bans = banned.data_ptr(), len(banned)
    counts, sizes = torch.zeros(sentences, dtype=torch.int64), lengths.new_zeros(sentences, settings.beam)
    symbols = lengths.new_empty(*sizes.shape, width)
    scores, positional = (torch.empty(like.shape, dtype=weights.dtype) for like in (sizes, symbols))
    attended = scores.new_empty(*symbols.shape, longest) if aligns and weights.attends else None
    results = _Results(*addresses(counts, sizes, scores, symbols, positional, attended), longest)
    kernels["use_threads", "float32"](torch.get_num_threads())  # OpenMP's own number may be another
    structures = weights.model, settings, batch, results
    if kernels["search", weights.dtype](*map(ctypes.addressof, structures)):
        raise MemoryError(f"no memory to translate {sentences} sentences at once")

    if not counts.all():
        number = int(counts.argmin()) + 1
        raise ValueError(f"sentence {number} of the batch has no translation: scores are NaN or infinite")
    inside, exists = torch.arange(width) < sizes[:, :, None], sizes > 0
    ends = sizes[exists].tolist()
    made = iter(zip(symbols[inside].split(ends), scores[exists], positional[inside].split(ends)))
    translations = [[hypothesis(*next(made)) for _ in range(count)] for count in counts.tolist()]
    if attended is not None:
        for hypotheses, attention, visible, length in zip(translations, attended, there, lengths.tolist()):
            for translation, rows in zip(hypotheses, attention):
                count = len(translation["tokens"])
                translation["attention"] = rows.new_zeros(source.size(1), count)
                translation["attention"][visible] = rows[:count, :length].t()
    return translations


def hypothesis(tokens: Tensor, score: Tensor, positional: Tensor) -> dict[str, Tensor]:
    """A translation in fairseq's form."""
    made = {"tokens": tokens, "score": score, "positional_scores": positional}
    return {**made, "attention": torch.empty(0), "alignment": torch.empty(0)}
