"""From a whole file to a broken one, or to one that says something else."""

from __future__ import annotations

import copy
from argparse import Namespace

import torch
from hypothesis import strategies as st

# What stands where something else is wanted.
NUMBERS = (0, -1, 3, 10**30, 0.5, float("nan"), float("inf"))
OTHERS = (
    None,
    True,
    "",
    "x",
    "1e9",
    "é\u2028\0",
    [],
    [1],
    ["a"],
    {},
    {"a": 1},
    [[]],
    [[1.5]],
    [[None]],
    [[[1]]],
)
JUNK = st.sampled_from((*NUMBERS, *OTHERS))
NOTHING = torch.full((4,), torch.nan)
TENSORS = st.sampled_from(
    (torch.ones(1), torch.ones(2, 3), NOTHING, torch.ones(2, dtype=torch.long), Namespace(a=1))
)


@st.composite
def broken(draw, whole: bytes) -> bytes:
    """Bytes flipped, cut off, doubled, put in or taken out."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from((1, 2, 8, 100, 5000)))
        how = draw(st.sampled_from(("flip", "cut", "take out", "double", "put in", "zeros")))
        if how == "flip" and place < len(content):
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del content[place:]
        elif how == "take out":
            del content[place : place + length]
        elif how == "double":
            content[place:place] = content[place : place + length]
        elif how == "put in":
            content[place:place] = draw(st.binary(max_size=8))
        elif how == "zeros":
            content[place : place + length] = bytes(len(content[place : place + length]))
    return bytes(content)


@st.composite
def changed(draw, whole, junk=JUNK, most: int = 2):
    """Nested data in which entries are gone, or are something else."""
    value = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, most))):
        inner = value
        while True:
            inside = vars(inner) if isinstance(inner, Namespace) else inner
            if not isinstance(inside, (dict, list)) or not inside:
                break
            keys = list(inside) if isinstance(inside, dict) else range(len(inside))
            key = draw(st.sampled_from(keys))
            deeper = isinstance(inside[key], (dict, list, Namespace)) and draw(st.integers(0, 3)) > 0
            if deeper:
                inner = inside[key]
                continue
            how = draw(st.sampled_from(("gone", "junk", "junk", "new", "double")))
            # Copies: what is drawn here is changed there.
            other = copy.deepcopy(inside[key] if how == "double" else draw(junk))
            if how == "gone":
                del inside[key]
            elif how == "junk":
                inside[key] = other
            elif isinstance(inside, list):
                inside.append(other)
            else:
                inside[draw(st.sampled_from(("new", 7, "", "α")))] = other
            break
    return value
