"""``train.tags.*`` of IWSLT: lines of text between lines of tagged metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from . import of_side
from .lines import read_lines

# As in fairseq's recipes for IWSLT: lines with metadata of the talks, which are not translations.
METADATA = ("<url>", "<talkid>", "<keywords>", "<speaker>", "<reviewer", "<translator", "<doc", "</doc>")
KEPT = re.compile(r"</?(title|description)>")


@of_side("ted_tags")
def read_ted_tags(path: Path) -> Iterator[str]:
    """The text lines, and the text of ``<title>`` and ``<description>``, all stripped."""
    for line in read_lines(path):
        if not any(tag in line for tag in METADATA):
            yield KEPT.sub("", line).strip()
