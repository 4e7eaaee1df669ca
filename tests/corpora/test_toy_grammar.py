"""The toy grammar compared with hand-written tables that are independent of its rules of inflection."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from user_dir.corpora import load_corpus, toy_grammar
from user_dir.corpora.prepare import prepare
from user_dir.corpora.toy_clauses import german_finite
from user_dir.corpora.toy_grammar import pairs, sentence_pairs
from user_dir.corpora.toy_lexicon import (
    ASKING,
    COMPOUND_NOUNS,
    INDOORS,
    MODALS,
    OUTDOORS,
    QUALITIES,
    SAYING,
    SIMPLE_NOUNS,
    SIZES,
    VERBS,
)
from user_dir.corpora.toy_phrases import PRONOUNS
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]

GENDERS = {
    "m": "König Koch Gärtner Maler Sohn Hund Vogel Ball Apfel Brief Schlüssel Korb Stuhl Tisch Turm Laden "
    "Baum Garten Wald Hof",
    "f": "Königin Lehrerin Tochter Tänzerin Katze Kuh Ziege Blume Lampe Flasche Karte Uhr Glocke Tür Bank "
    "Brücke Küche Kirche Scheune",
    "n": "Kind Mädchen Pferd Buch Bild Messer Fenster Tor Haus Boot Dach Dorf",
}
PLURALS = """
Könige Köche Gärtner Maler Söhne Hunde Vögel Bälle Äpfel Briefe Schlüssel Körbe Stühle Tische Türme Läden
Bäume Gärten Wälder Höfe Königinnen Lehrerinnen Töchter Tänzerinnen Katzen Kühe Ziegen Blumen Lampen
Flaschen Karten Uhren Glocken Türen Bänke Brücken Küchen Kirchen Scheunen Kinder Mädchen Pferde Bücher
Bilder Messer Fenster Tore Häuser Boote Dächer Dörfer
"""

# The allowed continuations of each determiner, "ending of adjectives:form of the noun": m, f and n are
# singulars, mg and ng genitives, p is the plural, pd its dative.
AFTER = {
    "der": "e:m en:f",
    "die": "e:f en:p",
    "das": "e:n",
    "den": "en:m en:pd",
    "dem": "en:m en:n",
    "des": "en:mg en:ng",
    "dieser": "e:m en:f",
    "diese": "e:f en:p",
    "dieses": "e:n",
    "diesen": "en:m en:pd",
    "diesem": "en:m en:n",
    "welcher": "e:m en:f",
    "welche": "e:f en:p",
    "welches": "e:n",
    "welchen": "en:m en:pd",
    "zwei": "e:p en:pd",
    "drei": "e:p en:pd",
    "viele": "e:p",
    "vielen": "en:pd",
}
for word in ("ein", "kein", "mein", "unser"):
    AFTER[word] = "er:m es:n"
    AFTER[word + "e"] = "e:f" if word == "ein" else "e:f en:p"
    AFTER[word + "en"] = "en:m" if word == "ein" else "en:m en:pd"
    AFTER[word + "em"] = "en:m en:n"
    AFTER[word + "er"] = "en:f"
    AFTER[word + "es"] = "en:mg en:ng"
AFTER["im"] = "en:m en:n"

INTERROGATIVES = {
    "wer",
    "wen",
    "wem",
    "was",
    "wo",
    "wann",
    "warum",
    "wie",
    "welcher",
    "welche",
    "welches",
    "welchen",
}


@pytest.fixture(scope="module")
def everything():
    return sentence_pairs(8800, 1)


def noun_forms():
    """Spelling of a noun form → its possible genders and numbers, as in AFTER."""
    forms = {}
    for noun in [*SIMPLE_NOUNS, *COMPOUND_NOUNS, *OUTDOORS, *INDOORS]:
        forms.setdefault(noun.nominative, set()).add(noun.gender)
        forms.setdefault(noun.genitive, set()).add(noun.gender + ("" if noun.gender == "f" else "g"))
        forms.setdefault(noun.plural, set()).add("p")
        dative = noun.plural if noun.plural.endswith(("n", "s")) else noun.plural + "n"
        forms.setdefault(dative, set()).add("pd")
    return forms


def test_genders_and_plurals():
    expected = {word: gender for gender, words in GENDERS.items() for word in words.split()}
    for noun in [*SIMPLE_NOUNS, *OUTDOORS, *INDOORS]:
        assert noun.gender == expected[noun.nominative], noun
        assert noun.plural in PLURALS.split(), noun
    heads = {noun.nominative.lower(): noun for noun in SIMPLE_NOUNS}
    for noun in COMPOUND_NOUNS:
        ends = [head for head in heads if noun.nominative.endswith(head)]
        head = heads[max(ends, key=len)]
        assert (noun.gender, noun.kind) == (head.gender, head.kind)
        assert noun.plural.endswith(head.plural.lower()) and noun.english.endswith(f" {head.english}")


def test_articles_adjectives_and_nouns_agree(everything):
    forms = noun_forms()
    stems = sorted((each.stem for each in SIZES + QUALITIES), key=len, reverse=True)
    adjective = re.compile(rf"({'|'.join(stems)})(e|er|es|en)")
    checked = 0
    for german, _ in everything:
        words = re.findall(r"\w+|[,.?]", german)
        for i, word in enumerate(words):
            determiner = word.lower()
            if determiner not in AFTER:
                continue
            j, endings = i + 1, set()
            while match := adjective.fullmatch(words[j]):
                endings.add(match[2])
                j += 1
            if words[j] not in forms:
                # A relative pronoun, a time (im Winter) or a particle (packt … ein).
                particle = determiner == "ein" and words[j] in ".,?"
                assert not endings and (words[i - 1] == "," or determiner == "im" or particle), german
                continue
            assert len(endings) <= 1, german
            allowed = [each.split(":") for each in AFTER[determiner].split()]
            fits = [form for ending, form in allowed if form in forms[words[j]] and endings <= {ending}]
            assert fits, f"{determiner} {words[i + 1 : j + 1]} in: {german}"
            checked += 1
    assert checked > 10_000


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("sehen", "sehe sehen sieht sieht sehen"),
        ("finden", "finde finden findet findet finden"),
        ("laden", "lade laden lädt lädt laden"),
        ("tragen", "trage tragen trägt trägt tragen"),
        ("geben", "gebe geben gibt gibt geben"),
        ("antworten", "antworte antworten antwortet antwortet antworten"),
        ("wissen", "weiß wissen weiß weiß wissen"),
        ("können", "kann können kann kann können"),
        ("wollen", "will wollen will will wollen"),
        ("dürfen", "darf dürfen darf darf dürfen"),
    ],
)
def test_verbs_agree(infinitive, forms):
    verb = next(verb for verb in [*VERBS, *MODALS, *SAYING, *ASKING] if verb.infinitive == infinitive)
    assert [german_finite(verb, pronoun) for pronoun in PRONOUNS] == forms.split()  # ich, wir, er, sie, sie


def test_subject_and_verb_agree_in_number(everything):
    """Statements with a subject in front: the article determines its number, the ending that of the verb."""
    checked = 0
    for german, _ in everything:
        if german.endswith("?") or "," in german:
            continue
        first, *rest = german[:-1].split()
        if first in ("Er", "Zwei", "Drei", "Viele", "Ein", "Der", "Das", "Dieser", "Dieses", "Mein", "Unser"):
            plural = first in ("Zwei", "Drei", "Viele")
            verb = next(word for word in rest if word[0].islower() and not word.startswith(ADJECTIVE_STARTS))
            assert verb.endswith("en") == plural, german
            checked += 1
    assert checked > 500


ADJECTIVE_STARTS = tuple(each.stem for each in SIZES + QUALITIES)


def test_questions_have_a_mark_and_an_interrogative_or_the_verb_first(everything):
    words_first = {words[0] for german, _ in everything if (words := german.lower().split())}
    assert {"wer", "wen", "wem", "was", "wo", "wann", "warum", "wie", "welche"} <= words_first
    verbs = {verb.third for verb in [*VERBS, *MODALS]} | {verb.infinitive for verb in [*VERBS, *MODALS]}
    verbs |= {infinitive[:-1] for infinitive in verbs}
    for german, english in everything:
        question = german.lower().split()[0] in INTERROGATIVES | verbs
        assert german.endswith("?") == question == english.endswith("?"), german


def test_subordinate_verbs_come_last(everything):
    finite = {
        form for verb in [*VERBS, *MODALS] for form in (verb.third, verb.infinitive, verb.infinitive[:-1])
    }
    finite |= {
        verb.particle + form for verb in VERBS for form in (verb.third, verb.infinitive, verb.infinitive[:-1])
    }
    modals = {form for verb in MODALS for form in (verb.third, verb.infinitive)}
    seen = 0
    for german, _ in everything:
        found = re.search(
            r"(?:^|, )(?:weil|wenn|obwohl|während|dass|wo|wann|warum) ([^,?]*?)[,.]", german, re.I
        )
        if found:
            *before, last = found[1].split()
            assert last in finite and not modals & set(before), german
            seen += 1
    assert seen > 1000


def test_prepositions_take_the_dative(everything):
    datives = {"dem", "der", "den", "zwei", "drei", "vielen"}
    datives |= {word + ending for word in ("ein", "mein", "unser", "dies") for ending in ("em", "er", "en")}
    seen = 0
    for german, _ in everything:
        for preposition, determiner in re.findall(r"\b(in|hinter|vor|neben|mit) (\w+)", german, re.I):
            assert determiner in datives - ({"dem"} if preposition.lower() == "in" else set()), german
            seen += 1
        assert not re.search(r"\bim (?:der|dem|ein)", german, re.I), german
    assert seen > 500


def test_capital_letters_and_spaces(everything):
    for side in (each for pair in everything for each in pair):
        assert side[0].isupper() and side[-1] in ".?", side
        assert side == " ".join(side.split()) and not re.search(r" [,.?]|,\S|,[.?]|[.?].", side), side


def test_a_and_an(everything):
    for _, english in everything:
        for article, word in re.findall(r"\b(an?) (\w)", english, re.I):
            assert (article.lower() == "an") == (word in "aeiou"), english


def test_no_sentence_twice_on_either_side(everything):
    for side in zip(*everything):
        assert len(set(side)) == len(side) == 8800


def test_the_same_seed_gives_the_same_bytes():
    code = (
        "import hashlib; from user_dir.corpora.toy_grammar import sentence_pairs; "
        "print(hashlib.sha256(repr(sentence_pairs(500, 7)).encode()).hexdigest())"
    )
    here = hashlib.sha256(repr(sentence_pairs(500, 7)).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert there.stdout.strip() == here, there.stderr
    assert sentence_pairs(500, 8) != sentence_pairs(500, 7)


def test_splits_are_disjoint_and_have_their_sizes():
    corpus = load_corpus("toy")
    splits = {name: list(pairs(corpus, name, None)) for name in corpus.subsets}
    assert {name: len(found) for name, found in splits.items()} == {"train": 8000, "valid": 400, "test": 400}
    for side in (0, 1):
        sentences = [pair[side] for found in splits.values() for pair in found]
        assert len(set(sentences)) == 8800


def test_lengths_are_similar_in_all_splits():
    corpus = load_corpus("toy")
    mean = {}
    for name in corpus.subsets:
        lengths = [len(german.split()) for german, _ in pairs(corpus, name, None)]
        mean[name] = sum(lengths) / len(lengths)
    assert max(mean.values()) - min(mean.values()) < 1, mean


def test_too_many_pairs(monkeypatch):
    monkeypatch.setattr(toy_grammar, "sentence", lambda rng: ("Ja.", "Yes."))
    with pytest.raises(UserError, match="cannot generate"):
        sentence_pairs(2, 1)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("train: 8000", "train: all", "splits: train is 'all'"),
        ("train: 8000", "train: 0", "splits: train is 0"),
        ("{seed: 1}", "{}", "must be a seed"),
        ("[de, en]", "[en, de]", r"has \[de, en\]"),
        ("toy_grammar\n", "toy_grammer\n", "unknown origin 'toy_grammer'; choose from"),
    ],
)
def test_a_bad_description(tmp_path, old, new, complaint):
    text = load_corpus("toy").description.path.read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "corpus.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        prepare(load_corpus("mine", tmp_path))


def test_raw_is_refused(tmp_path):
    with pytest.raises(UserError, match="omit --raw"):
        prepare(load_corpus("toy", tmp_path), raw=tmp_path)
