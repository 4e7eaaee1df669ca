"""Sums over discrete choices, exact because their distribution is sparse; depends on torch only."""

from .bits import expected_bits, sparsemap_bits, topk_sparsemax_bits
from .categories import entmax, sparsemax, topk_entmax, topk_sparsemax
from .estimators import Bits, Categories, RunningMean, dense, gumbel, nvil, sfe, sfe_plus
from .mixture import log_mixture
from .sparsemap import bits_oracle, budget_oracle, sparsemap
from .support import Support, marginalise

__all__ = [
    "Bits",
    "Categories",
    "RunningMean",
    "Support",
    "bits_oracle",
    "budget_oracle",
    "dense",
    "entmax",
    "expected_bits",
    "gumbel",
    "log_mixture",
    "marginalise",
    "nvil",
    "sfe",
    "sfe_plus",
    "sparsemap",
    "sparsemap_bits",
    "sparsemax",
    "topk_entmax",
    "topk_sparsemax",
    "topk_sparsemax_bits",
]
