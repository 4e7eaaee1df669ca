"""The stress test of ``strain.py`` with few updates, and a loss scale that must overflow."""

import pytest
from strain import EVERY, NORMALIZERS, PRECISIONS, train

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_precision_breaks_entmax(corpus, precision):
    scaled = "fp16" in precision or precision == "AMP"
    flags = [*PRECISIONS[precision], *(["--fp16-init-scale", str(2**24)] if scaled else [])]
    updates = EVERY // 2 + 2  # the last but one has fully masked rows
    found = {name: train(corpus / "bin", [*flags, *own], updates) for name, own in NORMALIZERS.items()}
    for name, outcome in found.items():
        assert not outcome.ended and outcome.updates == updates and outcome.broken == 0, name
        assert outcome.losses[-1] < outcome.losses[0], name
        if scaled:
            assert outcome.overflows > 0 and outcome.scale == 2.0 ** (24 - outcome.overflows), name
    low, high = found["α-entmax"].alphas
    assert 1 <= low < 1.000002 and 1.9999 < high <= 2
