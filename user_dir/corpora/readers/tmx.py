"""TMX translation memories, which have all languages in one file."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from ...errors import UserError
from .lines import read_lines

LANG = "{http://www.w3.org/XML/1998/namespace}lang"
NATIVE = {"bpt", "ept", "it", "ph", "ut"}  # formatting codes, not text
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)(?:(\w+);)?")
# Only these end a line; other Unicode separators are text.
BREAK = re.compile(r"[ \t]*[\r\n]\s*")


def read_tmx(path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The pairs of a TMX file, optionally ``.gz``; a side is empty if a unit lacks that language.

    Bare ``&`` and control characters, which XML forbids, are tolerated. ``de`` also matches ``de-AT``.
    """
    parser = XMLPullParser(["start", "end"])
    above: list[Element] = []
    try:
        for line in read_lines(path):
            parser.feed(AMPERSAND.sub(_entity, FORBIDDEN.sub("", line)) + "\n")
            yield from _units(parser, above, languages)
        parser.close()
        yield from _units(parser, above, languages)
    except ParseError as error:
        raise UserError(
            f"{path}, line {error.position[0]}: not TMX ({error}); download the file again"
        ) from None
    except RecursionError:
        raise UserError(
            f"{path} is not TMX: a segment is nested too deeply; download the file again"
        ) from None


def _units(parser: XMLPullParser, above: list[Element], languages: tuple[str, str]):
    for event, element in parser.read_events():
        if event == "start":
            above.append(element)
            continue
        above.pop()
        if element.tag == "tu":
            sides = {_language(each): each for each in reversed(element.findall("tuv"))}
            yield tuple(_segment(sides.get(language)) for language in languages)
            for parent in above[-1:]:
                parent.clear()  # otherwise the parser would keep all units in memory


def _language(variant: Element) -> str:
    return (variant.get(LANG) or variant.get("lang") or "").replace("_", "-").split("-")[0].lower()


def _segment(variant: Element | None) -> str:
    segment = None if variant is None else variant.find("seg")
    return "" if segment is None else BREAK.sub(" ", _text(segment)).strip()


def _text(element: Element) -> str:
    inside = "" if element.tag in NATIVE else (element.text or "") + "".join(map(_text, element))
    return inside + (element.tail or "" if element.tag != "seg" else "")


def _entity(found: re.Match) -> str:
    known = html.unescape(found[0]) if found[1] else found[0]
    return "&amp;" + found[0][1:] if known == found[0] else known
