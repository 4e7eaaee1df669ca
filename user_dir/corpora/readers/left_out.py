"""Why readers leave text out: the reasons that the summary of ``prepare.py`` counts."""

from __future__ import annotations

EMPTY = "a side was empty"
BLANK = "a line was blank"
OUTSIDE = "not in the lines that corpus.yaml names"
TRAILING = "a blank line was left over at the end of one file"
SECOND_VARIANT = "a further text of a unit in the same language"
SUBFLOW = "text within a formatting code (<sub>)"
TEST_SUITE = "a segment of a test suite"
SYSTEM = "a segment by a system (<hyp>)"
NO_REFERENCE = "a segment had no reference"
NO_SOURCE = "a reference had no source segment"
OTHER_REFERENCE = "a segment of a further reference"


def no_language(language: str) -> str:
    """The reason for what is not in a language."""
    return f"not in {language}"
