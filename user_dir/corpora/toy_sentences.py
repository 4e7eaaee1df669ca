"""Sentences of the toy corpus, in nine forms from statements to object questions."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from .toy_clauses import (
    Clause,
    any_clause,
    english_question,
    english_statement,
    german_verb_final,
    german_verb_second,
)
from .toy_lexicon import ASKING, CONJUNCTIONS, INTERROGATIVES, LIVING, SAYING, VERBS, Verb
from .toy_phrases import HOW_MANY, THE, WHICH, Phrase, any_phrase, form

WHO = Phrase("wer", "who")
Pair = tuple[str, str]  # German, English


def statement(rng: Random) -> Pair:
    """The cook opens the door today; also with the adverb or the place in front."""
    clause = any_clause(rng)
    fronts = [each for each in ("adverb", "where") if getattr(clause, each)]
    front = rng.choice(["subject", *fronts])
    return german_verb_second(clause, front), english_statement(clause, None if front == "subject" else front)


def with_reason(rng: Random) -> Pair:
    """A main clause with a subordinate clause before or after it."""
    main, sub = any_clause(rng, plain=True), any_clause(rng, plain=True)
    german, english = rng.choice(CONJUNCTIONS)
    german_sub, english_sub = german_verb_final(sub, german), f"{english} {english_statement(sub)}"
    if rng.random() < 0.35:  # a subordinate clause in front is followed by the verb
        return german_verb_second(main, german_sub + ","), f"{english_sub}, {english_statement(main)}"
    return f"{german_verb_second(main, 'subject')}, {german_sub}", f"{english_statement(main)} {english_sub}"


def reported(rng: Random) -> Pair:
    """The queen knows that …, the cook asks where …"""
    asks = rng.random() < 0.5
    verb = rng.choice(ASKING if asks else SAYING)
    frame = any_clause(rng, replace(verb, frame="intransitive"))
    frame = replace(frame, modal=None, negated=False, adverb=None, where=None)
    german, english = rng.choice(INTERROGATIVES) if asks else ("dass", "that")
    clause = _without_answer(any_clause(rng, plain=True), german)
    return (
        f"{german_verb_second(frame, 'subject')}, {german_verb_final(clause, german)}",
        f"{english_statement(frame)} {english} {english_statement(clause)}",
    )


def subject_relative(rng: Random) -> Pair:
    """The dog that looks for the ball sleeps."""
    head = any_phrase(rng, LIVING, "nominative")
    pronoun = form(THE, "nominative", head.gender, head.plural)
    who = replace(head, german=pronoun, english="who" if head.kind == "person" else "that")
    inner = any_clause(rng, _verb(rng, subject=head.kind), who, plain=True)
    relative = f"{head.german}, {german_verb_final(inner, '')},"
    outer = any_clause(
        rng,
        _verb(rng, subject=head.kind),
        replace(head, german=relative, english=f"{head.english} {english_statement(inner)}"),
        plain=True,
    )
    return german_verb_second(outer, "subject"), english_statement(outer)


def object_relative(rng: Random) -> Pair:
    """The cook looks for the ball that the dog sees."""
    outer = any_clause(rng, _verb(rng, frame="accusative", particle=False), plain=True)
    outer = replace(outer, modal=None, adverb=None, where=None)
    head = outer.direct
    inner = any_clause(rng, _verb(rng, frame="accusative", object=head.kind), plain=True)
    pronoun = form(THE, "accusative", head.gender, head.plural)
    inner = replace(inner, direct=None)
    return (
        f"{german_verb_second(outer, 'subject')}, {german_verb_final(inner, pronoun)}",
        f"{english_statement(outer)} that {english_statement(inner)}",
    )


def yes_no_question(rng: Random) -> Pair:
    """Does the dog look for the ball?"""
    clause = any_clause(rng, plain=True)
    return german_verb_second(clause, ""), english_question(clause)


def adverbial_question(rng: Random) -> Pair:
    """Where, when, why, how does …?"""
    german, english = rng.choice(INTERROGATIVES)
    clause = _without_answer(any_clause(rng, plain=True), german)
    return german_verb_second(clause, german), english_question(clause, english)


def subject_question(rng: Random) -> Pair:
    """Who looks for the ball? Which dog …?"""
    verb = rng.choice(VERBS)
    who = WHO if rng.random() < 0.6 else any_phrase(rng, verb.subjects, "nominative", WHICH)
    clause = any_clause(rng, verb, who, plain=True)
    return german_verb_second(clause, "subject"), english_statement(clause)


def object_question(rng: Random) -> Pair:
    """What, whom, to whom, which ball, how many balls does …?"""
    clause = any_clause(rng, rng.choice([verb for verb in VERBS if verb.frame != "intransitive"]), plain=True)
    if clause.indirect:
        to = "to " if clause.direct else ""
        return german_verb_second(replace(clause, indirect=None), "wem"), english_question(
            replace(clause, indirect=None), f"{to}whom"
        )
    rest = replace(clause, direct=None)
    kind = clause.direct.kind
    which = rng.randrange(3)
    if which == 0:
        living = kind in LIVING
        return german_verb_second(rest, "wen" if living else "was"), english_question(
            rest, "whom" if living else "what"
        )
    plural = which == 2
    asked = any_phrase(rng, (kind,), "accusative", HOW_MANY if plural else WHICH, plural or None)
    return german_verb_second(rest, asked.german), english_question(rest, asked.english)


FORMS = [  # form, and its percentage
    (statement, 30),
    (with_reason, 14),
    (reported, 10),
    (subject_relative, 6),
    (object_relative, 6),
    (yes_no_question, 8),
    (adverbial_question, 10),
    (subject_question, 6),
    (object_question, 10),
]


def sentence(rng: Random) -> Pair:
    """A random pair of the grammar, capitalised and with final punctuation."""
    bag = [each for each, share in FORMS for _ in range(share)]
    made = rng.choice(bag)
    mark = "?" if made.__name__.endswith("question") else "."
    return tuple(_finish(side, mark) for side in made(rng))


def _finish(text: str, mark: str) -> str:
    text = re.sub(",+$", "", text)
    return text[0].upper() + text[1:] + mark


def _without_answer(clause: Clause, interrogative: str) -> Clause:
    """Remove the answer to a question from its clause: the place for where, the time for when."""
    return replace(
        clause,
        where=None if interrogative == "wo" else clause.where,
        adverb=None if interrogative == "wann" else clause.adverb,
    )


def _verb(
    rng: Random, subject: str = "person", object: str | None = None, frame: str = "", particle: bool = True
) -> Verb:
    """A verb for this kind of subject and object and this frame, optionally without particle verbs."""
    return rng.choice(
        [
            verb
            for verb in VERBS
            if subject in verb.subjects
            and (object is None or object in verb.objects)
            and (not frame or verb.frame == frame)
            and (particle or not verb.particle)
        ]
    )
