"""TMX translation memories, which have all languages in one file."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, iterparse

from ...errors import UserError
from ...files import UNREADABLE, open_binary
from ..languages import language as language_of
from . import Pairs, Source, of_pairs
from .lines import on_one_line

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
CODES = {"bpt", "ept", "it", "ph", "ut"}  # formatting, not text


@of_pairs("tmx", "tmx")
def read_tmx(paths: list[Path], languages: tuple[str, str], source: Source) -> Pairs:
    """The first text in each language of every unit; units without both languages are left out.

    Raises:
        UserError: the file is not well-formed XML.
    """
    body = Element("body")  # where a file has none
    try:
        with open_binary(paths[0]) as file:
            for event, element in iterparse(file, ("start", "end")):
                if event == "start" and _name(element) == "body":
                    body = element
                elif event == "end" and _name(element) == "tu":
                    left, right = (_text(element, language) for language in languages)
                    body.clear()  # what was read is not kept in memory
                    if left and right:
                        yield left, right
    except (*UNREADABLE, ParseError) as error:
        raise UserError(f"cannot read {paths[0]}: {error}") from None


def _text(unit: Element, language: str) -> str:
    wanted = language_of(language)
    for variant in unit.iterfind("{*}tuv"):
        tagged = language_of(variant.get(LANGUAGE) or variant.get("lang", ""))
        if (tagged.subtag, tagged.script) == (wanted.subtag, wanted.script):
            for segment in variant.iterfind("{*}seg"):
                for element in segment.iter():
                    if _name(element) in CODES:
                        element.text = ""
                return on_one_line("".join(segment.itertext()))
    return ""


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]
