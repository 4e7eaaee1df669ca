"""What tests of attention share: which implementation a call came to."""

import threading

import pytest
from helpers import DENSE

from user_dir.attention import cpu, dense, triton


@pytest.fixture
def taken(monkeypatch):
    """The implementation of each call of attention since, ``fused`` or ``dense``, without self-checks."""
    calls = []

    def count(name, target, function):
        def counted(*arguments, **named):
            if not threading.current_thread().name.startswith("self-check"):
                calls.append(name)
            return function(*arguments, **named)

        monkeypatch.setattr(target, counted)

    count("dense", DENSE, dense.dense_attention)
    count("fused", "user_dir.attention.cpu.KERNEL.compute", cpu.KERNEL.compute)
    count("fused", "user_dir.attention.triton.KERNEL.compute", triton.KERNEL.compute)
    return calls
