"""Our attention against PyTorch's on the CPU: time of forward and training, and memory, by length."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F

from ..attention import attention
from ..tables import Column, mebibytes, table
from .attention import target, time_attention
from .contenders import PER_HEAD, Contender

# length → sentences: some 16,000 tokens of short sequences, and at least one sequence of the long ones
SENTENCES = {32: 64, 128: 16, 512: 4, 1024: 2, 2048: 1, 4096: 1}
LONG = 512
MEASURES = ("forward", "training")
SDPA, OURS, OURS_15 = "softmax, SDPA", "α-entmax, α learned", "α-entmax, α = 1.5"
DROPOUT, BFLOAT16 = "α-entmax, α learned, dropout 0.1", "α-entmax, α learned, bfloat16"
SDPA_BFLOAT16 = "softmax, SDPA, bfloat16"
PEERS = {BFLOAT16: SDPA_BFLOAT16, SDPA_BFLOAT16: SDPA_BFLOAT16}  # compared with; SDPA if not named here
# (contender, other, measure): the time as a multiple of the other's, on the geometric mean and at worst
AIMS = {
    (OURS, SDPA, "forward"): (1.0, 1.3),
    (OURS, SDPA, "training"): (0.6, None),
    (OURS_15, SDPA, "forward"): (0.8, None),
    (OURS_15, SDPA, "training"): (0.4, None),
    (BFLOAT16, SDPA_BFLOAT16, "forward"): (1.0, None),
    (BFLOAT16, SDPA_BFLOAT16, "training"): (0.6, None),
}
SHORT_AIMS = {
    (OURS, SDPA, "forward"): (1.0, 1.0),
    (OURS, SDPA, "training"): (1.0, 1.0),
    (BFLOAT16, SDPA_BFLOAT16, "forward"): (1.0, 1.0),
    (BFLOAT16, SDPA_BFLOAT16, "training"): (0.6, 0.6),
}


def compare(length: int, sentences: int, rounds: int, seed: int, dtype: torch.dtype) -> list[dict]:
    """The rows of :func:`.attention.time_attention` at a length, for each mask; ``mask`` says which.

    Raises:
        RuntimeError: one of the attentions fails.
    """
    rows, cpu = [], torch.device("cpu")
    for causal in (False, True):
        for row in time_attention(length, sentences, rounds, seed, cpu, dtype, contenders(causal), causal):
            for measure, error in row["failures"].items():
                raise RuntimeError(f"{measure} of {row['implementation']}, n = {length}: {error}")
            rows.append(row)
    return rows


def contenders(causal: bool) -> tuple[Contender, ...]:
    """PyTorch's attention in two dtypes; ours at 1.5, and three times with α per head from 1.05 to 1.95."""

    def sdpa(query, key, value, alpha):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def ours(query, key, value, alpha, dropout=0.0):
        return attention(query, key, value, alpha, causal=causal, dropout=dropout)[0]

    return (
        Contender(SDPA, 1.0, sdpa, square=True),
        Contender(OURS, PER_HEAD, ours, square=True),
        Contender(OURS_15, 1.5, ours, square=True),
        Contender(DROPOUT, PER_HEAD, functools.partial(ours, dropout=0.1), square=True),
        Contender(SDPA_BFLOAT16, 1.0, sdpa, square=True, dtype=torch.bfloat16),
        Contender(BFLOAT16, PER_HEAD, ours, square=True, dtype=torch.bfloat16),
    )


def ratios(rows: list[dict], contender: str, other: str, measure: str) -> dict[tuple[int, str], float]:
    """Time of a contender as a multiple of another's, by length and mask."""
    medians = {
        (row["length"], row["mask"], row["implementation"]): row["seconds"][measure]["median"] for row in rows
    }
    return {
        (length, mask): median / medians[length, mask, other]
        for (length, mask, name), median in medians.items()
        if name == contender
    }


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def aims(rows: list[dict]) -> list[dict]:
    """What is aimed at for long and short sequences, what was measured, and whether that reaches it."""
    long = _aims_of([row for row in rows if row["length"] >= LONG], AIMS, f"n ≥ {LONG}")
    return long + _aims_of([row for row in rows if row["length"] < LONG], SHORT_AIMS, f"n < {LONG}")


def _aims_of(rows: list[dict], aims: dict[tuple[str, str, str], tuple], lengths: str) -> list[dict]:
    found = []
    for (contender, other, measure), (mean, worst) in aims.items():
        measured = list(ratios(rows, contender, other, measure).values())
        if not measured:
            continue
        what = f"{measure}, {contender}, {lengths}: time over that of {other}"
        found.append(target(f"{what}, mean", mean, geometric_mean(measured)))
        if worst is not None:
            found.append(target(f"{what}, worst", worst, max(measured)))
    return found


def sdpa_table(rows: list[dict]) -> str:
    """The rows of :func:`compare` as Markdown: ms, multiples of SDPA's in the same dtype, peak memory."""
    columns = [column for measure in MEASURES for column in _columns(rows, measure)]
    columns.append(Column("peak of training, MiB", lambda row: mebibytes(row.get("peak_bytes"), ".1f")))
    lines = [([row["length"], row["sentences"], row["mask"], row["implementation"]], row) for row in rows]
    return table(["n", "sentences", "mask", "attention"], lines, columns)


def _columns(rows: list[dict], measure: str) -> list[Column]:
    names = {row["implementation"] for row in rows}
    multiples = {name: ratios(rows, name, PEERS.get(name, SDPA), measure) for name in names}
    return [
        Column(f"{measure}, ms", lambda row: f"{1000 * row['seconds'][measure]['median']:.3g}"),
        Column("×SDPA", lambda row: f"{multiples[row['implementation']][row['length'], row['mask']]:.2f}"),
    ]
