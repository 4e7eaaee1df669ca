"""Corrections: case and accents, copied from the machine translation or ignored in scores."""

import json

import pytest

from user_dir.corpora import load_corpus
from user_dir.post_editing.scoring import changes, with_case_of
from user_dir.translation.scoring import ScoredSplit, make_ter

ACCENTS = str.maketrans("äöüé", "aoue")


def fold(word: str) -> str:
    return word.lower().translate(ACCENTS)


@pytest.mark.parametrize(
    ("correction", "translation", "expected"),
    [
        ("der hund schlaft .", "Der Hund schlaf .", "Der Hund schlaft ."),  # what is new has no case to copy
        ("das ist fur käthe .", "Das ist für Käthe .", "Das ist für käthe ."),  # nor what fold would change
        ("heute schlaft der hund .", "Der Hund schläft heute .", "Heute schläft der Hund ."),
        ("der hund , der bellt", "der Hund , der BELLT", "der Hund , der BELLT"),
        ("in rom sah er rom .", "In Rom sah er ROM .", "In Rom sah er ROM ."),
        ("the nato said ( nato )", "The NATO said ( Nato )", "The NATO said ( Nato )"),
        ("und rom", "Rom", "Und rom"),  # the capital may be of the beginning
        ("the u.s. army, too", "The U.S. Army too", "The U.S. Army, too"),
        ("", "Ein Satz", ""),
        ("ein satz", "", "ein satz"),
        (". . .", "A", ". . ."),
    ],
)
def test_words_are_written_as_in_the_translation(correction, translation, expected):
    assert with_case_of(correction, translation, fold) == expected


def test_a_translation_that_was_left_alone_is_restored_as_it_was():
    for line in ("Der Sultan ernennt Richter , und Äpfel fallen .", "iPhone und eBay : McDonald’s", "GROSS"):
        assert with_case_of(fold(line), line, fold) == line


MT, PE = ["Der Hund schläft nie .", "Wo ist Rom ?"], ["Der Hund schläft .", "Wo liegt Rom ?"]
HYPOTHESES = ["der hund schlaft .", "wo liegt rom ?"]


def prepared(folder, *keys):
    """What scoring needs of a corpus in the pieces of an uncased BERT."""
    text = folder / "mine" / "text"
    (text / "mt").mkdir(parents=True)
    description = 'title: t\nlanguages: [en, de]\nsplits: {train: "a.{side}", valid: "b.{side}"}\n'
    (folder / "mine" / "corpus.yaml").write_text("\n".join([description, "origin: triplets", *keys]))
    for name, lines in (("mt/valid.de", MT), ("valid.de", PE)):
        (text / name).write_text("".join(f"{line}\n" for line in lines))
    letters = "abcdefghijklmnopqrstuvwxyz.?"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    normalizer = {"type": "BertNormalizer", "lowercase": True}
    model = {"type": "WordPiece", "vocab": {token: row for row, token in enumerate(tokens)}}
    (text / "tokenizer.json").write_text(json.dumps({"normalizer": normalizer, "model": model}))
    return load_corpus("mine", folder)


def test_case_is_ignored_unless_it_is_copied(tmp_path):
    plain = prepared(tmp_path / "a", "wordpiece: vocab.txt")
    split = ScoredSplit(plain, "valid", ("en", "de"))
    scores = split.scores(split.lines(HYPOTHESES))
    assert split.case == "ignored" and split.lines(HYPOTHESES) == HYPOTHESES
    assert "case:lc" in scores["bleu_signature"] and "case:lc" in scores["ter_signature"]
    assert scores["ter"] == pytest.approx(100 / 8)  # schlaft
    copied = prepared(tmp_path / "b", "wordpiece: vocab.txt", "case: from_translation")
    split = ScoredSplit(copied, "valid", ("en", "de"))
    scores = split.scores(split.lines(HYPOTHESES))
    assert split.case == "from_translation" and split.lines(HYPOTHESES) == PE
    assert "case:mixed" in scores["bleu_signature"] and scores["ter"] == 0
    split.left_out = [0]
    assert split.lines(HYPOTHESES[1:]) == PE[1:]


def test_changes_of_post_editing():
    """Edits by hand: a word replaced, inserted or deleted is one."""
    references = ["a b c d"] * 5
    uncorrected = ["a b c d", "a x c d", "a b c d", "a x c d", "a x y d"]
    hypotheses = ["a  b c d", "a b c d", "a b c", "a c d", "a x c d"]
    counts = changes(hypotheses, uncorrected, [references], make_ter("en"))
    assert counts == {"left_alone": 1, "improved": 2, "worsened": 1, "no_effect": 1}
