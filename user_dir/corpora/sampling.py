"""A random sample of known size, the same on every machine.

sentencepiece can draw one itself, but since its version 0.2.2 another in each process, whatever its seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


def sample(items: Iterable[Item], count: int, size: int, seed: int = 1) -> Iterator[Item]:
    """``size`` of ``count`` items, in their order, each subset being as likely as any other.

    All items if there are fewer. Algorithm S of Knuth, The Art of Computer Programming, volume 2, section
    3.4.2, which keeps no item. ``Random.random`` gives the same numbers in every version of Python.
    """
    draw = Random(seed).random
    wanted = min(size, count)
    for left, item in zip(range(count, 0, -1), items):
        if draw() * left < wanted:
            wanted -= 1
            yield item
