"""Noun phrases of the toy corpus: articles, adjectives and nouns agree in gender, case and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from .toy_lexicon import (
    COMPOUND_NOUNS,
    INDOORS,
    OUTDOORS,
    PREPOSITIONS,
    QUALITIES,
    SIMPLE_NOUNS,
    SIZES,
    THINGS,
    Adjective,
    Noun,
)

CASES = ("nominative", "accusative", "dative", "genitive")

# Endings by case, in the order masculine, feminine, neuter, plural; "-" is no ending. DER, EIN and THE are
# endings of articles; WEAK, MIXED and STRONG_PLURAL of adjectives after der, ein and numbers.
DER = dict(zip(CASES, ("er e es e", "en e es e", "em er em en", "es er es er")))
EIN = dict(zip(CASES, ("- e - e", "en e - e", "em er em en", "es er es er")))
THE = dict(zip(CASES, ("der die das die", "den die das die", "dem der dem den", "des der des der")))
BARE = dict.fromkeys(CASES, "- - - -")
WEAK = dict(zip(CASES, ("e e e en", "en e e en", "en en en en", "en en en en")))
MIXED = dict(zip(CASES, ("er e es en", "en e es en", "en en en en", "en en en en")))
STRONG_PLURAL = dict(zip(CASES, ("- - - e", "- - - e", "- - - en", "- - - er")))


@dataclass(frozen=True)
class Determiner:
    """An article or similar: its stem and endings, endings of adjectives after it, and its English forms."""

    stem: str
    endings: dict[str, str]
    adjective_endings: dict[str, str]
    singular: str | None  # None: not used in that number
    plural: str | None
    definite: bool = False


THE_ = Determiner("", THE, WEAK, "the", "the", definite=True)
THIS = Determiner("dies", DER, WEAK, "this", "these", definite=True)
WHICH = Determiner("welch", DER, WEAK, "which", "which")
A = Determiner("ein", EIN, MIXED, "a", None)
NO = Determiner("kein", EIN, MIXED, "no", "no")
MY = Determiner("mein", EIN, MIXED, "my", "my", definite=True)
OUR = Determiner("unser", EIN, MIXED, "our", "our", definite=True)
TWO = Determiner("zwei", BARE, STRONG_PLURAL, None, "two")
THREE = Determiner("drei", BARE, STRONG_PLURAL, None, "three")
MANY = Determiner("viel", STRONG_PLURAL, STRONG_PLURAL, None, "many")
HOW_MANY = Determiner("wie viel", STRONG_PLURAL, STRONG_PLURAL, None, "how many")
USUAL = [THE_, THE_, THE_, A, A, THIS, MY, OUR, TWO, THREE, MANY]


@dataclass(frozen=True)
class Phrase:
    """A subject or an object in both languages, with the features that others agree with."""

    german: str
    english: str
    plural: bool = False
    first_person: bool = False
    gender: str = ""  # m, f, n; empty for pronouns
    kind: str = "person"
    noun: str = ""
    definite: bool = True


PRONOUNS = [
    Phrase("ich", "I", first_person=True),
    Phrase("wir", "we", plural=True, first_person=True),
    Phrase("er", "he"),
    Phrase("sie", "she"),
    Phrase("sie", "they", plural=True),
]


def form(endings: dict[str, str], case: str, gender: str, plural: bool) -> str:
    """The ending of one case, gender and number."""
    return endings[case].split()[3 if plural else "mfn".index(gender)].replace("-", "")


def phrase(
    noun: Noun, case: str, plural: bool, determiner: Determiner, adjectives: Sequence[Adjective] = ()
) -> Phrase:
    """Inflect a noun phrase."""
    ending = form(determiner.adjective_endings, case, noun.gender, plural)
    if plural:
        german_noun = noun.dative_plural if case == "dative" else noun.plural
    else:
        german_noun = noun.genitive if case == "genitive" else noun.nominative
    german = [
        determiner.stem + form(determiner.endings, case, noun.gender, plural),
        *(adjective.stem + ending for adjective in adjectives),
        german_noun,
    ]
    words = [*(each.english for each in adjectives), noun.english_plural if plural else noun.english]
    article = determiner.plural if plural else determiner.singular
    if article == "a" and words[0][0] in "aeiou":
        article = "an"
    english = " ".join([article, *words])
    return Phrase(
        " ".join(german), english, plural, False, noun.gender, noun.kind, noun.nominative, determiner.definite
    )


def any_phrase(
    rng: Random,
    kinds: tuple[str, ...],
    case: str,
    determiner: Determiner | None = None,
    plural: bool | None = None,
) -> Phrase:
    """A random noun phrase whose noun is of one of the given kinds."""
    noun = any_noun(rng, kinds)
    plural = rng.random() < 0.3 if plural is None else plural
    if determiner is None:
        fits = [each for each in USUAL if (each.plural if plural else each.singular)]
        determiner = rng.choice(fits)
    found = phrase(noun, case, plural, determiner, any_adjectives(rng, noun.kind))
    # Avoids "the barn door of the kitchen".
    can_be_owned = noun.kind in THINGS and not (noun.kind == "opening" and noun in COMPOUND_NOUNS)
    if determiner is THE_ and can_be_owned and rng.random() < 0.2:
        return _owned(rng, found, case, plural)
    return found


def any_noun(rng: Random, kinds: tuple[str, ...]) -> Noun:
    """A noun of one of the kinds; the kind is chosen first, so that the many compounds do not dominate."""
    kind = rng.choice(kinds)
    simple = [noun for noun in SIMPLE_NOUNS if noun.kind == kind]
    compound = [noun for noun in COMPOUND_NOUNS if noun.kind == kind]
    return rng.choice(compound if compound and rng.random() < 0.5 else simple)


def any_adjectives(rng: Random, kind: str) -> list[Adjective]:
    """Up to two adjectives, size before quality as in English."""
    chosen: list[Adjective] = []
    for adjectives, share in ((SIZES, 0.25), (QUALITIES, 0.2)):
        fits = [each for each in adjectives if kind in each.kinds]
        if rng.random() < share and fits:
            chosen.append(rng.choice(fits))
    return chosen[:1] if {each.english for each in chosen} == {"old", "young"} else chosen


def _owned(rng: Random, owned: Phrase, case: str, plural: bool) -> Phrase:
    """``der Ball des Kindes``, the child's ball; for a part of a building, ``the door of the house``."""
    if owned.kind == "opening":
        owner = phrase(rng.choice(INDOORS), "genitive", False, THE_, any_adjectives(rng, "place"))
        english = f"{owned.english} of {owner.english}"
    else:
        determiner = rng.choice([THE_, MY, OUR])
        person = any_noun(rng, ("person",))
        owner = phrase(person, "genitive", False, determiner, any_adjectives(rng, "person"))
        english = f"{owner.english}'s {owned.english[len('the ') :]}"
    return replace(owned, german=f"{owned.german} {owner.german}", english=english)


def place(rng: Random) -> tuple[str, str]:
    """A place: a preposition and a noun phrase in the dative."""
    preposition, english = rng.choice(PREPOSITIONS)
    determiner = rng.choice([THE_, THE_, A, OUR])
    noun = rng.choice(OUTDOORS + INDOORS)
    where = phrase(noun, "dative", False, determiner, any_adjectives(rng, "place"))
    german = f"{preposition} {where.german}"
    if german.startswith("in dem "):
        german = "im " + german[len("in dem ") :]
    return german, f"{english} {where.english}"


def company(rng: Random) -> tuple[str, str]:
    """A companion: "mit" and a noun phrase in the dative."""
    someone = any_phrase(rng, ("person", "animal"), "dative")
    return f"mit {someone.german}", f"with {someone.english}"
