"""The origin of the toy corpus: German–English sentence pairs from a grammar, with no data file.

Only ``random.Random`` decides, so the same seed gives the same bytes on every machine. A corpus gives,
for each split, the number of pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random

from ..errors import UserError
from .corpus import Corpus
from .toy_sentences import Pair, sentence

MOST = 1_000_000  # pairs of a split


def sentence_pairs(number: int, seed: int) -> list[Pair]:
    """``number`` pairs in which no German and no English sentence comes twice, in random order."""
    rng = Random(seed)
    pairs: list[Pair] = []
    seen: tuple[set[str], set[str]] = set(), set()
    misses = 0
    while len(pairs) < number:
        pair = sentence(rng)
        if pair[0] in seen[0] or pair[1] in seen[1]:
            misses += 1
            if misses > 100 * number + 10_000:
                raise UserError(
                    f"the toy grammar does not reach {number:,} different pairs; ask for fewer in corpus.yaml"
                )
            continue
        for side, known in zip(pair, seen):
            known.add(side)
        pairs.append(pair)
    # Short sentences run out first; without this the last split would get the long ones.
    for i in range(len(pairs) - 1, 0, -1):
        j = rng.randrange(i + 1)
        pairs[i], pairs[j] = pairs[j], pairs[i]
    return pairs


def check(corpus: Corpus) -> None:
    """Raise a ``UserError`` unless every split is a number of pairs, and the seed a number."""
    path, splits, options = corpus.description.path, corpus.description.splits, corpus.description.options
    for name, number in splits.items():
        if type(number) is not int or not 1 <= number <= MOST:
            raise UserError(
                f"{path}: splits: {name} is {number!r}, but must be a number of sentence pairs up to {MOST:,}"
            )
    if set(options) != {"seed"} or not isinstance(options["seed"], int):
        raise UserError(f"{path}: options is {options!r}, but must be a seed, as {{seed: 1}}")
    if corpus.languages != ("de", "en"):
        raise UserError(f"{path}: languages is {list(corpus.languages)}, but the toy grammar speaks [de, en]")


def inputs(corpus: Corpus, raw: Path | None) -> dict[str, str]:
    """What the text is: the sentences themselves, by their hash, so that another grammar is noticed."""
    if raw is not None:
        raise UserError(f"the corpus {corpus.name} is generated and has no raw files; leave out --raw")
    return {"sentences": hashlib.sha256(repr(_every_pair(corpus)).encode()).hexdigest()}


def available(corpus: Corpus) -> bool:
    """Always: there is nothing to download."""
    return True


def extract_members(corpus: Corpus, raw: Path | None, made_from: dict[str, str], force: bool) -> None:
    """Nothing: there are no archives."""


def held_out(corpus: Corpus) -> None:
    """None: every split has pairs of its own."""


def references(corpus: Corpus, split: str, raw: Path | None) -> None:
    """None: the text itself is what to score against."""


def pairs(corpus: Corpus, split: str, raw: Path | None) -> Iterator[Pair]:
    """The pairs of one split, which no other split has on either side."""
    numbers = [corpus.description.splits[name] for name in corpus.subsets]
    start = sum(numbers[: list(corpus.subsets).index(split)])
    yield from _every_pair(corpus)[start : start + corpus.description.splits[split]]


def _every_pair(corpus: Corpus) -> list[Pair]:
    return _cached_pairs(sum(corpus.description.splits.values()), corpus.description.options["seed"])


_cached_pairs = lru_cache(maxsize=1)(sentence_pairs)
