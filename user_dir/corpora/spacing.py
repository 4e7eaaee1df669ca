"""One rule for white space in all text that becomes pieces, in training as in translation."""

from __future__ import annotations

import re

SPACE_MARK = "▁"
"""What sentencepiece writes for a space."""
_OTHER_SPACE = re.compile(rf"[^\S ]|{SPACE_MARK}")


def spaced(text: str) -> str:
    """Replace each character of white space, and sentencepiece's mark for it, by a space.

    White space is what Python's ``\\s`` and ``str.split`` take for it, and therefore fairseq, which splits a
    line of pieces there: tabs, no-break and ideographic spaces, U+2028, U+0085 and the like, all of Unicode's
    White_Space and U+001C to U+001F. sentencepiece knows the space alone: by its rule, others stay within
    pieces, where fairseq would join the words at both sides, or are deleted.
    """
    return _OTHER_SPACE.sub(" ", text)
