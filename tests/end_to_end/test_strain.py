"""The stress test of ``strain.py`` with few updates, and a loss scale that must overflow."""

import pytest
from strain import EVERY, NORMALIZERS, PRECISIONS, train

pytestmark = pytest.mark.slow


# The others are for comparison with these.
QUICK = [(precision, "α-entmax") for precision in ("fp16", "AMP", "bf16")]


@pytest.mark.parametrize(
    ("precision", "normalizer"),
    [
        pytest.param(precision, name, marks=[] if (precision, name) in QUICK else pytest.mark.nightly)
        for precision in PRECISIONS
        for name in NORMALIZERS
    ],
)
def test_no_precision_breaks_training(corpus, precision, normalizer):
    scaled = "fp16" in precision or precision == "AMP"
    flags = [*PRECISIONS[precision], *(["--fp16-init-scale", str(2**24)] if scaled else [])]
    updates = EVERY // 2 + 2  # the last but one has fully masked rows
    outcome = train(corpus / "bin", [*flags, *NORMALIZERS[normalizer]], updates)
    assert not outcome.ended and outcome.updates == updates and outcome.broken == 0
    assert outcome.losses[-1] < outcome.losses[0]
    if scaled:
        assert outcome.overflows > 0 and outcome.scale == 2.0 ** (24 - outcome.overflows)
    if normalizer == "α-entmax":
        low, high = outcome.alphas
        assert 1 <= low < 1.000002 and 1.9999 < high <= 2
