"""What tests of attention share: which implementation a call came to."""

import threading

import pytest
from helpers import DENSE

from user_dir.attention import cpu, dispatch


@pytest.fixture
def taken(monkeypatch):
    """The implementation of each call of attention since, ``fused`` or ``dense``, without self-checks."""
    calls = []

    def count(name, target, function):
        def counted(*given, **named):
            if not threading.current_thread().name.startswith("self-check"):
                calls.append(name)
            return function(*given, **named)

        monkeypatch.setattr(target, counted)

    count("dense", DENSE, dispatch.dense_attention)
    count("fused", "user_dir.attention.cpu.KERNEL.compute", cpu.KERNEL.compute)
    try:
        from user_dir.attention.triton import kernels
    except ImportError:  # no Triton
        return calls
    count("fused", "user_dir.attention.triton.kernels.KERNEL.compute", kernels.KERNEL.compute)
    return calls
