"""What tests of attention share: which implementation a call came to."""

import threading

import pytest
from helpers import DENSE

from user_dir.attention import cpu_attention, dispatch


@pytest.fixture
def taken(monkeypatch):
    """The implementation of each call of attention since, ``fused`` or ``dense``, without self-checks."""
    calls = []

    def count(name, target, function):
        def counted(*given, **named):
            if threading.current_thread().name != "self-check":
                calls.append(name)
            return function(*given, **named)

        monkeypatch.setattr(target, counted)

    count("dense", DENSE, dispatch.dense_attention)
    count("fused", "user_dir.attention.cpu_attention.fused_attention", cpu_attention.fused_attention)
    try:
        from user_dir.attention import fused
    except ImportError:  # no Triton
        return calls
    count("fused", "user_dir.attention.fused.fused_attention", fused.fused_attention)
    return calls
