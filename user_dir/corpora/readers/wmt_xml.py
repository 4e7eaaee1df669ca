"""WMT's XML of 2021 and later: source, references and translations by systems in one file, by document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...bounded import unpacking
from ...errors import UserError
from ...io import shown
from ...languages import same_language
from .left_out import NO_REFERENCE, NO_SOURCE, OTHER_REFERENCE, SYSTEM, TEST_SUITE
from .references import on_one_line
from .xml_stream import MAX_SHOWN, Target, local, read_xml
from .xml_text import Mending, decoded

ROOTS = {"dataset", "collection"}
MAX_DOCUMENT = 32 << 20
"""Characters of a document with its references."""


@dataclass
class Side:
    """A source or a reference of a document: segments by id."""

    kind: str
    language: str
    translator: str
    segments: dict[str, str] = field(default_factory=dict)


def is_wmt_xml(path: Path) -> bool:
    """Whether the first element of a file is that of WMT's XML."""
    try:
        with unpacking(path) as file:
            start = Mending(path).feed(next(decoded(file, path)))
    except UserError:  # of another encoding, or SGML that is no XML: its reader will tell
        return False
    name = start.partition("<")[2][:50].partition(">")[0].split()
    return bool(name) and local(name[0]) in ROOTS


def read_wmt_pairs(
    path: Path, languages: tuple[str, str], translator: str | None, left_out: Counter
) -> Iterator[tuple[str, str]]:
    """The pairs of the segments of source and reference, in their order.

    Either language may be the one that the file was translated from. The reference is that of ``translator``;
    if None, the first of each document that has the segment.

    Raises:
        UserError: the file is not well-formed, has an id twice, or has no pair.
    """
    target = _Documents(path, left_out)
    pairs = 0
    for sides in read_xml(path, target):
        for pair in _pairs(sides, languages, translator, left_out):
            pairs += 1
            yield pair
    if not pairs:
        wanted = f" by {shown(translator)}" if translator else ""
        raise UserError(
            f"{path} has no segment in {languages[0]} and {languages[1]} with a reference{wanted}; it has "
            + (", ".join(target.seen) or "no text")
        )


def read_wmt_side(
    path: Path, language: str, translator: str | None, left_out: Counter
) -> Iterator[tuple[str, str]]:
    """Id and text of every segment in one language: of the source, or else of the first reference."""
    target = _Documents(path, left_out)
    found = False
    for sides in read_xml(path, target):
        fitting = _in_language(sides, language, translator)
        for side in fitting[:1]:
            found = True
            yield from side.segments.items()
        left_out[OTHER_REFERENCE] += sum(len(side.segments) for side in fitting[1:])
    if not found:
        raise UserError(f"{path} has no text in {language}; it has " + (", ".join(target.seen) or "none"))


def _pairs(sides: list[Side], languages: tuple[str, str], translator: str | None, left_out: Counter):
    ours = [_in_language(sides, language, translator) for language in languages]
    source = next((side for side in sides if side.kind == "src"), None)
    if source is None or not any(each is source for fitting in ours for each in fitting):
        left_out[NO_SOURCE] += max((len(side.segments) for side in sides), default=0)
        return
    place = 0 if any(each is source for each in ours[0]) else 1
    references = [side for side in ours[1 - place] if side is not source]
    for name, text in source.segments.items():
        texts = [side.segments[name] for side in references if side.segments.get(name)]
        if not texts:
            left_out[NO_REFERENCE] += 1
            continue
        if texts[1:]:
            left_out[OTHER_REFERENCE] += len(texts) - 1
        yield (text, texts[0]) if place == 0 else (texts[0], text)
    lost = set().union(*(side.segments for side in references)) - source.segments.keys()
    if lost:
        left_out[NO_SOURCE] += len(lost)


def _in_language(sides: list[Side], language: str, translator: str | None) -> list[Side]:
    return [
        side
        for side in sides
        if same_language(side.language, language)
        and (side.kind == "src" or translator in (None, side.translator))
    ]


class _Documents(Target):
    """Finds the sides of each document, systems left out."""

    def __init__(self, path: Path, left_out: Counter):
        super().__init__(path)
        self._left_out = left_out
        self.seen: dict[str, None] = {}  # what the file has, some of it
        self._sides: list[Side] = []
        self._side: Side | None = None
        self._suite = False
        self._name = ""
        self._size = 0

    def start(self, tag: str, attributes) -> None:
        super().start(tag, attributes)
        name = local(tag)
        if name == "doc":
            self._flush()
            self._suite = "testsuite" in attributes
        elif name in ("src", "ref", "hyp"):
            who = attributes.get("translator") or attributes.get("system") or ""
            self._side = Side(name, self.language_of(attributes), who)
            if name != "hyp":
                self._sides.append(self._side)
                if len(self.seen) < MAX_SHOWN:
                    by = f" by {shown(who)}" if who else ""
                    self.seen[f"{name} in {shown(self._side.language)}{by}"] = None
        elif name == "seg" and self._side is not None:
            self._name = attributes.get("id") or f"number {len(self._side.segments) + 1}"
            self.begin_text()

    def end(self, tag: str) -> None:
        super().end(tag)
        name = local(tag)
        if name == "seg" and self._parts is not None:
            self._add(on_one_line(self.end_text()))
        elif name in ("src", "ref", "hyp"):
            self._side = None
        elif name in ("doc", *ROOTS):
            self._flush()

    def _add(self, text: str) -> None:
        if self._side.kind == "hyp" or self._suite:
            self._left_out[SYSTEM if self._side.kind == "hyp" else TEST_SUITE] += 1
            return
        if self._name in self._side.segments:
            raise UserError(f"{self.path} has the segment {shown(self._name)} twice in a document")
        self._side.segments[self._name] = text
        self._size += len(text) + len(self._name) + 100
        if self._size > MAX_DOCUMENT:
            raise UserError(f"{self.path} has a document of more than {MAX_DOCUMENT:,} characters")

    def _flush(self) -> None:
        if self._sides and not self._suite:
            self.found.append(self._sides)
        self._sides, self._suite, self._size = [], False, 0
