"""How the tests of this folder search, and what an example may end with.

The cases are the same in every run, by day half of those by night. ``FUZZ=10 python -m pytest tests/fuzz``
tries ten times as many, others each time.
"""

from __future__ import annotations

import functools
import os
import signal
from contextlib import contextmanager

import hypothesis
import pytest
from forks import NIGHTLY

from user_dir.errors import UserError

TIMES = int(os.environ.get("FUZZ", "1"))
SHARE = 1 if TIMES > 1 or os.environ.get(NIGHTLY) else 2


cases = 0  # that the present test has tried


def search(examples: int):
    """What makes a test search for so many examples, and counts them."""
    settings = hypothesis.settings(
        max_examples=max(examples * TIMES // SHARE, 1),
        deadline=None,  # of the wall clock, which tells nothing on a machine that is busy
        derandomize=TIMES == 1,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    def decorate(test):
        inner = test.hypothesis.inner_test

        @functools.wraps(inner)
        def counted(*args, **kwargs):
            global cases
            cases += 1
            return inner(*args, **kwargs)

        test.hypothesis.inner_test = counted
        return settings(test)

    return decorate


def budgets(few: int, many: int):
    """A test's ``examples``: so few by default, and so many by night."""
    return pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.nightly)])


@contextmanager
def limited(seconds: int = 20):
    """Fail where the body takes more processor time than that: something hangs."""

    def hangs(*_):
        raise AssertionError(f"no end after {seconds} s")

    previous = signal.signal(signal.SIGPROF, hangs)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def sentence(function, *arguments, **options) -> str | None:
    """What a mistake ends with: one sentence; None where all goes well. Any other exception is passed on."""
    try:
        with limited():
            function(*arguments, **options)
    except UserError as error:
        return _checked(str(error))
    except SystemExit as error:
        if error.code == 2:  # argparse, which has printed its own
            return "usage"
        if error.code in (None, 0):
            return None
        assert str(error.code).startswith("error: "), error.code
        return _checked(error.code)
    return None


def _checked(message: str) -> str:
    assert message.strip(), "an empty message"
    assert "\n" not in message.strip(), message
    return message
