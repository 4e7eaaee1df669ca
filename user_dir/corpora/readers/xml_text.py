"""XML as people write it, mended piece by piece so that a parser takes it, and no text is lost.

Bare ``&``, HTML's entities and characters that XML forbids are tolerated. Sections of CDATA become text.
Comments, processing instructions and the document type, which no format here needs, are left out.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from xml.sax.saxutils import escape

from ...bounded import BLOCK
from ...errors import UserError
from ...io import shown
from .references import REFERENCE, joined_surrogates, named, number_of

MAX_REFERENCE = 1 << 16  # characters
MAX_OPEN = {"<!DOCTYPE": 1 << 16, "<!--": 4 << 20, "<?": 4 << 20, "<![CDATA[": 4 << 20}
"""Characters from a mark to the one that closes it."""
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_MARKS = (  # byte order marks, and the first character without one
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z][\w.-]{0,39})["']""")
# Codecs of characters: Python also has those of archives and of its own strings.
_ENCODINGS = re.compile(
    r"utf-8|ascii|iso8859-\d+|cp\d+|koi8-[rtu]|gb2312|gbk|gb18030|big5(hkscs)?|shift_jis|euc_(jp|kr)|tis-620"
)
_SECTION = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[(?P<text>.*?)\]\]>|<\?.*?\?>"""
    r"""|<!DOCTYPE(?:[^\[\]>"']|"[^"]*"|'[^']*')*(?:\[.*?\]\s*)?>"""
    r"""|(?P<open><!--|<!\[CDATA\[|<\?|<!DOCTYPE)""",
    re.DOTALL,
)
_OPEN = re.compile(r"(?:<[^>]{0,8}|&[#\w]*)?\Z")  # a mark or a reference that may go on in the next piece
_AMPERSAND = re.compile(rf"{REFERENCE.pattern}|&")
_QUOTES = {'"': "&quot;", "'": "&apos;"}


def decoded(file: BinaryIO, path: Path) -> Iterator[str]:
    """The text of an XML file piece by piece, by its byte order mark or the encoding it declares.

    Raises:
        UserError: the encoding is unknown, or a byte does not fit it; with the line.
    """
    block = file.read(BLOCK)
    encoding = next((name for mark, name in _MARKS if block.startswith(mark)), None)
    if encoding is None:
        declared = _DECLARED.match(block)
        encoding = _known(declared[1].decode(), path) if declared else "utf-8"
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    while True:
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].decode(encoding, "replace").count("\n")
            byte = f"{error.object[error.start]:#04x}"
            raise UserError(
                f"{path}, line {line}: byte {byte} is not {error.encoding.upper()}; convert the file to UTF-8"
            ) from None
        line += text.count("\n")
        yield text
        if not block:
            return
        block = file.read(BLOCK)


def _known(name: str, path: Path) -> str:
    """The codec of a declared encoding; a file that can be read byte by byte is not UTF-16."""
    if re.fullmatch("utf-?(16|32).*", name, re.IGNORECASE):
        return "utf-8"
    try:
        found = codecs.lookup(name).name
    except LookupError:
        found = ""
    if not _ENCODINGS.fullmatch(found):
        raise UserError(f"{path}: the encoding {shown(name)} is unknown; convert the file to UTF-8")
    return found


class Mending:
    """Turns the pieces of an XML file into pieces that a parser takes, with the same lines.

    Args:
        path: the file, for errors.
    """

    def __init__(self, path: Path):
        self._path, self._line = path, 1
        self._waiting = ""  # what the next piece may go on with
        self._half = ""  # a reference to the first half of a character: the other may follow

    def feed(self, piece: str, last: bool = False) -> str:
        """Mend a piece; the ``last`` one may be empty.

        Raises:
            UserError: the document type declares entities, or something is not closed; with the line.
        """
        text, at, mended, opened = self._waiting + piece, 0, [], None
        for found in _SECTION.finditer(text):
            mended.append(self._mended(text[at : found.start()]))
            opened = found["open"]
            if opened:
                at = found.start()
                break
            mended.append(self._section(found))
            at = found.end()
        if not opened:
            end = len(text) if last else _OPEN.search(text, at).start()
            mended.append(self._mended(text[at:end]))
            at = end
        self._waiting = text[at:]
        most = MAX_OPEN.get(opened, MAX_REFERENCE)
        if len(self._waiting) > most or (opened and last):
            within = "" if last else f" within {most:,} characters"
            raise self._error(f"{opened or 'a reference'} is not closed{within}")
        joined = self._half + "".join(mended)
        self._half = joined[-1:] if not last and "\ud800" <= joined[-1:] < "\udc00" else ""
        return joined_surrogates(joined.removesuffix(self._half))

    def _section(self, found: re.Match) -> str:
        """The text of a section of CDATA, and the lines of anything else."""
        if found[0].startswith("<!DOCTYPE") and "<!ENTITY" in found[0]:
            raise self._error("its document type declares entities, which are not read")
        lines = found[0].count("\n")
        self._line += lines
        return "\n" * lines if found["text"] is None else escape(FORBIDDEN.sub(" ", found["text"]))

    def _mended(self, text: str) -> str:
        """Text and tags with proper references."""
        line = self._line
        self._line += text.count("\n")

        def replaced(found: re.Match) -> str:
            number = number_of(found, lambda at: f"{self._path}, line {line + text.count(chr(10), 0, at)}")
            known = named(found) if number is None else chr(number)
            return "&amp;" + found[0][1:] if known is None else escape(known, _QUOTES)

        return FORBIDDEN.sub(" ", _AMPERSAND.sub(replaced, text))

    def _error(self, complaint: str) -> UserError:
        return UserError(f"{self._path}, line {self._line}: {complaint}; download the file again")
