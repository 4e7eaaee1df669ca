"""XML read by lxml as a stream, without a tree in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from lxml import etree

from ...bounded import MAX_LINE, unpacking
from ...errors import UserError
from ...io import shown
from .xml_text import Mending, decoded

LANG = "{http://www.w3.org/XML/1998/namespace}lang"
MAX_MARKUP = 4 << 20
"""Characters without an element or text, as in a tag with an endless attribute."""
MAX_DEPTH = 256
"""Elements within each other; the parser keeps all that are open, and has no limit of its own."""
MAX_LANGUAGES = 1000
"""Languages of a file: langcodes keeps all that it has seen."""
MAX_SHOWN = 20  # languages in an error


class Target:
    """What is done with the elements of a file: a subclass adds what it finds to ``found``."""

    def __init__(self, path: Path):
        self.path = path
        self.found: list = []  # what is to be yielded next
        self.active = False  # whether something was read since this was last set to false
        self.languages: dict[str, None] = {}  # the codes that the file has
        self._parts: list[str] | None = None  # of the text that is read
        self._length = 0
        self._depth = 0

    def start(self, tag: str, attributes) -> None:
        """The start of an element."""
        self.active = True
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UserError(f"{self.path} has more than {MAX_DEPTH} elements within each other; is it XML?")

    def end(self, tag: str) -> None:
        """The end of an element."""
        self.active = True
        self._depth -= 1

    def data(self, text: str) -> None:
        """Text, or a part of it."""
        self.active = True
        if self._parts is not None:
            self._parts.append(text)
            self._length += len(text)
            if self._length > MAX_LINE:
                raise UserError(f"{self.path} has a segment of more than {MAX_LINE:,} characters")

    def language_of(self, attributes) -> str:
        """The language of an element; empty if it names none."""
        found = attributes.get(LANG) or attributes.get("lang") or ""
        self.languages[found] = None
        if len(self.languages) > MAX_LANGUAGES:
            raise UserError(f"{self.path} has more than {MAX_LANGUAGES:,} languages, such as {shown(found)}")
        return found

    def begin_text(self) -> None:
        """Read the text that follows."""
        self._parts, self._length = [], 0

    def end_text(self) -> str:
        """The text since :meth:`begin_text`."""
        text = "".join(self._parts or ())
        self._parts = None
        return text

    def close(self) -> None:
        """The end of the file."""


@lru_cache(maxsize=1000)
def local(tag: str) -> str:
    """The name of an element or attribute without its namespace, in lower case."""
    return tag.rpartition("}")[2].rpartition(":")[2].lower()


def read_xml(path: Path, target: Target) -> Iterator:
    """Parse a file, and yield what ``target`` finds.

    Raises:
        UserError: the file is not well-formed, even if bare ``&`` and forbidden characters are tolerated.
    """
    parser = etree.XMLParser(
        target=target, encoding="utf-8", resolve_entities=False, no_network=True, huge_tree=False
    )
    mending, idle = Mending(path), 0
    try:
        with unpacking(path) as file:
            for piece in decoded(file, path):
                text = mending.feed(piece, last=not piece)
                idle += len(text)
                if text:
                    parser.feed(text.encode("utf-8"))
                if target.active:
                    target.active, idle = False, 0
                elif idle > MAX_MARKUP:
                    raise UserError(f"{path} has a tag of more than {MAX_MARKUP:,} characters; is it XML?")
                yield from target.found
                target.found.clear()
        parser.close()
        yield from target.found
    except etree.XMLSyntaxError as error:
        reason = str(error.msg).partition(", line ")[0]
        raise UserError(
            f"{path}, line {error.lineno}: not well-formed XML ({reason}); download the file again"
        ) from None
