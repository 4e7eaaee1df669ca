"""Clauses of the toy corpus: a meaning, and the word orders that express it in each language."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from .toy_lexicon import ADVERBS, COMPANIONABLE, FREQUENCY, MODALS, VERBS, Verb, english_s
from .toy_phrases import NO, PRONOUNS, Phrase, any_phrase, company, place


@dataclass(frozen=True)
class Clause:
    """Who does what to whom, when and where. ``adverb`` and ``where`` are (German, English)."""

    subject: Phrase
    verb: Verb
    modal: Verb | None = None
    direct: Phrase | None = None  # accusative
    indirect: Phrase | None = None  # dative
    negated: bool = False
    adverb: tuple[str, str] | None = None
    where: tuple[str, str] | None = None


def any_clause(
    rng: Random, verb: Verb | None = None, subject: Phrase | None = None, plain: bool = False
) -> Clause:
    """A random clause; a ``plain`` one is short and without negation or "no"."""
    verb = verb or rng.choice(VERBS)
    if subject is None:
        by_noun = rng.random() < 0.75
        subject = any_phrase(rng, verb.subjects, "nominative") if by_noun else rng.choice(PRONOUNS)
    clause = Clause(subject, verb, modal=rng.choice(MODALS) if rng.random() < 0.2 else None)
    if verb.frame in ("accusative", "both"):
        clause = replace(clause, direct=_other(rng, subject, verb.objects, "accusative"))
    if verb.frame in ("dative", "both"):
        kinds = ("person",) if verb.frame == "both" else verb.objects
        clause = replace(clause, indirect=_other(rng, subject, kinds, "dative"))
    if rng.random() < (0.15 if plain else 0.35):
        clause = replace(clause, adverb=rng.choice(ADVERBS))
    elif rng.random() < (0.1 if plain else 0.35):
        together = verb.english in COMPANIONABLE and rng.random() < 0.5
        clause = replace(clause, where=company(rng) if together else place(rng))
    return clause if plain else _perhaps_negated(rng, clause)


def _other(rng: Random, subject: Phrase, kinds: tuple[str, ...], case: str) -> Phrase:
    while True:
        found = any_phrase(rng, kinds, case)
        if found.noun != subject.noun:
            return found


def _perhaps_negated(rng: Random, clause: Clause) -> Clause:
    if clause.modal or clause.where or rng.random() > 0.2:
        return clause
    if clause.direct and clause.verb.frame == "accusative" and rng.random() < 0.5:
        return replace(clause, direct=any_phrase(rng, clause.verb.objects, "accusative", NO))
    # After an indefinite object or an adverb, "nicht" would differ in meaning from English "not".
    if clause.adverb or not all(each.definite for each in (clause.direct, clause.indirect) if each):
        return clause
    return replace(clause, negated=True)


def german_finite(verb: Verb, subject: Phrase) -> str:
    """The verb in the present tense, agreeing with its subject, without its particle."""
    if subject.plural:
        return verb.infinitive
    if subject.first_person and verb.third.endswith("t"):
        return verb.infinitive[:-1]
    return verb.third  # also first person of kann, muss, darf, soll, will, weiß


def german_middle(clause: Clause) -> list[str]:
    """The words between the two parts of the verb, without the subject."""
    objects = [each.german for each in (clause.indirect, clause.direct) if each]
    adverb = [clause.adverb[0]] if clause.adverb else []
    where = [clause.where[0]] if clause.where else []
    return [*adverb, *objects, *(["nicht"] if clause.negated else []), *where]


def german_bracket(clause: Clause) -> tuple[str, str]:
    """The two parts of the verb: (macht, auf), (will, aufmachen), (sucht, "")."""
    if clause.modal:
        return german_finite(clause.modal, clause.subject), clause.verb.particle + clause.verb.infinitive
    return german_finite(clause.verb, clause.subject), clause.verb.particle


def german_verb_second(clause: Clause, first: str) -> str:
    """A main clause that begins with ``first``: "subject", "adverb", "where", or any other words."""
    finite, last = german_bracket(clause)
    if first == "subject":
        words = [clause.subject.german, finite, *german_middle(clause), last]
    elif first in ("adverb", "where"):
        rest = german_middle(replace(clause, **{first: None}))
        words = [getattr(clause, first)[0], finite, clause.subject.german, *rest, last]
    else:
        words = [first, finite, clause.subject.german, *german_middle(clause), last]
    return join(words)


def german_verb_final(clause: Clause, first: str) -> str:
    """A subordinate clause: ``first`` (weil, dass, wo …), subject, other words, verb."""
    finite, last = german_bracket(clause)
    verb = [last, finite] if clause.modal else [last + finite]
    return join([first, clause.subject.german, *german_middle(clause), *verb])


def english_verb(verb: Verb, subject: Phrase) -> str:
    """``looks for`` or ``look for``."""
    first, _, rest = verb.english.partition(" ")
    if not subject.plural and not subject.first_person:
        first = english_s(first)
    return join([first, rest])


def english_statement(clause: Clause, front: str | None = None) -> str:
    """Subject, verb, objects, place, time; ``front`` ("adverb" or "where") is moved to the beginning."""
    moved = ""
    if front:
        moved, clause = getattr(clause, front)[1], replace(clause, **{front: None})
    often, clause = _frequency(clause)
    modal, subject, verb = clause.modal, clause.subject, clause.verb
    if modal and " " not in modal.english:
        verbs = [modal.english, often, verb.english]
    elif modal:
        verbs = [often, english_verb(modal, subject), verb.english]
    elif clause.negated:
        verbs = [_do(subject), "not", verb.english]
    else:
        verbs = [often, english_verb(verb, subject)]
    return join([moved, subject.english, *verbs, *_english_rest(clause)])


def english_question(clause: Clause, first: str = "") -> str:
    """``first`` (where, what … or empty), auxiliary, subject, base form, other words."""
    often, clause = _frequency(clause)
    modal, verb = clause.modal, clause.verb.english
    if modal and " " not in modal.english:
        auxiliary = modal.english
    else:
        auxiliary, verb = _do(clause.subject), join([modal.english if modal else "", verb])
    return join([first, auxiliary, clause.subject.english, often, verb, *_english_rest(clause)])


def _frequency(clause: Clause) -> tuple[str, Clause]:
    """An adverb such as "often", which precedes the verb, and the clause without it."""
    if clause.adverb and clause.adverb[1] in FREQUENCY:
        return clause.adverb[1], replace(clause, adverb=None)
    return "", clause


def _do(subject: Phrase) -> str:
    return "do" if subject.plural or subject.first_person else "does"


def _english_rest(clause: Clause) -> list[str]:
    direct = [clause.direct.english] if clause.direct else []
    to = "to " if clause.verb.frame == "both" else ""
    indirect = [to + clause.indirect.english] if clause.indirect else []
    return [*direct, *indirect, *(each[1] for each in (clause.where, clause.adverb) if each)]


def join(words: list[str]) -> str:
    """Join words with spaces, skipping empty ones."""
    return " ".join(word for word in words if word)
