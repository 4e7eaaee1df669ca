"""The attention normalizers by name. All but the last two are α-entmax and differ only in α."""

from __future__ import annotations

from typing import Optional

# None: α is learned by the model. Sources: softmax; 1.5-entmax, Peters et al. 2019; sparsemax, Martins and
# Astudillo 2016; α-entmax with learned α, Correia et al. 2019. The last two have no α and count as 1: rela
# (rela.py), and fixed, which is softmax except for the encoder's heads with a pattern (fixed_patterns.py).
NORMALIZERS: dict[str, Optional[float]] = {
    "entmax": None,
    "entmax15": 1.5,
    "sparsemax": 2.0,
    "softmax": 1.0,
    "rela": 1.0,
    "fixed": 1.0,
}
