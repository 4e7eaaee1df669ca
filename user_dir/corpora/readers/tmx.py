"""TMX translation memories, which have all languages in one file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ...errors import UserError
from ...io import shown
from ...languages import same_language
from .left_out import EMPTY, SECOND_VARIANT, SUBFLOW, no_language
from .references import on_one_line
from .xml_stream import MAX_SHOWN, Target, local, read_xml

NATIVE = {"bpt", "ept", "it", "ph", "ut"}  # formatting codes, not text
# Codes that stand for white space or a break between words.
_SPACE = re.compile(
    r"\s*</?(br|p|div|li|tr|td|th|h[1-6]|hr)\b|\s*\\[nrt]|[ \t]*[\n\r\t\xa0]|&(nbsp|#160);", re.I
)
_BREAKS = {"lb", "pb"}
MAX_VARIANTS = 100  # texts of a unit in the two languages that are kept in memory


def read_tmx(path: Path, languages: tuple[str, str], left_out: Counter) -> Iterator[tuple[str, str]]:
    """The pairs of a TMX file of any namespace, optionally compressed.

    A language is that of ``corpus.yaml`` by :func:`~...languages.same_language`, and exactly the same is
    preferred. If a unit has several texts in a language, the first counts.

    Raises:
        UserError: the file is not well-formed, or no unit has text in both languages.
    """
    target = _Units(path, languages, left_out)
    pairs = 0
    for pair in read_xml(path, target):
        pairs += 1
        yield pair
    if not pairs:
        found = ", ".join(map(shown, islice(target.languages, MAX_SHOWN))) or "none"
        raise UserError(
            f"{path} has no translation unit with text in {languages[0]} and {languages[1]} among "
            f"{target.units:,}; its languages are {found}"
        )


class _Units(Target):
    def __init__(self, path: Path, languages: tuple[str, str], left_out: Counter):
        super().__init__(path)
        self._languages, self._left_out = languages, left_out
        self.units = 0
        self._texts: list[tuple[str, str]] = []  # of a unit: language, text
        self._tag = ""
        self._code: list[str] | None = None  # the text before a formatting code, while in one
        self._codes = 0  # formatting codes around
        self._type = ""

    def start(self, tag: str, attributes) -> None:
        super().start(tag, attributes)
        name = local(tag)
        if name == "tu":
            self._texts = []
        elif name == "tuv":
            self._tag = self.language_of(attributes)
        elif name == "seg":
            if any(same_language(self._tag, language) for language in self._languages):
                self.begin_text()
        elif self._parts is not None:
            if name in NATIVE:
                if not self._codes:
                    self._code, self._parts = self._parts, []
                    self._type = attributes.get("type") or ""
                self._codes += 1
            elif name == "sub" and self._codes:
                self._left_out[SUBFLOW] += 1

    def end(self, tag: str) -> None:
        super().end(tag)
        name = local(tag)
        if name == "tu":
            self._unit()
        elif self._parts is None:
            return
        elif name == "seg" and not self._codes:
            text = on_one_line(self.end_text())
            if len(self._texts) < MAX_VARIANTS:
                self._texts.append((self._tag, text))
            else:
                self._left_out[SECOND_VARIANT] += 1
        elif name in NATIVE and self._codes:
            self._codes -= 1
            if not self._codes:
                code, self._parts = "".join(self._parts), self._code
                if self._type in _BREAKS or _SPACE.match(code):
                    self._parts.append(" ")

    def _unit(self) -> None:
        self.units += 1
        sides = [None, None]
        for same in (_equal, same_language):  # exactly the same before what may be
            for side, language in enumerate(self._languages):
                if sides[side] is None:
                    fitting = (
                        i for i, (tag, _) in enumerate(self._texts) if i not in sides and same(tag, language)
                    )
                    sides[side] = next(fitting, None)
        for side, language in zip(sides, self._languages):
            if side is None:
                self._left_out[no_language(language)] += 1
                return
        if len(self._texts) > 2:
            self._left_out[SECOND_VARIANT] += len(self._texts) - 2
        pair = tuple(self._texts[side][1] for side in sides)
        if all(pair):
            self.found.append(pair)
        else:
            self._left_out[EMPTY] += 1


def _equal(tag: str, language: str) -> bool:
    return tag.replace("_", "-").lower() == language.replace("_", "-").lower()
