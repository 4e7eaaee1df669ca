"""The attention normalizers by name. All are α-entmax and differ only in α."""

from __future__ import annotations

from typing import Optional

# None: α is learned by the model. Sources: softmax; 1.5-entmax, Peters et al. 2019; sparsemax, Martins and
# Astudillo 2016; α-entmax with learned α, Correia et al. 2019.
NORMALIZERS: dict[str, Optional[float]] = {
    "entmax": None,
    "entmax15": 1.5,
    "sparsemax": 2.0,
    "softmax": 1.0,
}
