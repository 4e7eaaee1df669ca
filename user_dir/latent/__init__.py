"""Sums over discrete choices, exact because their distribution is sparse; depends on torch only."""

from .bits import expected_bits, sparsemap_bits, topk_sparsemax_bits
from .categories import entmax, sparsemax, topk_entmax, topk_sparsemax
from .estimators import RunningMean, dense, gumbel, nvil, sfe, sfe_plus
from .families import Bits, Categories
from .marginal import marginalise
from .mixture import log_mixture
from .oracles import LinearChain, bits_oracle, budget_oracle
from .sparsemap import sparsemap
from .support import Support

__all__ = [
    "Bits",
    "Categories",
    "LinearChain",
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
