"""Which training pairs are left out, how text is normalised; the rules are written down here once more."""

from collections import Counter

import pytest
from tiny import described

from user_dir.corpora.cleaning import (
    EMPTY,
    NEAR_DUPLICATE,
    complaint,
    letters,
    normalise,
    steps_of_new_text,
    unlike,
)
from user_dir.corpora.description import Limit

PAIR = ("de", "en")


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (2, 2, None),
        (10, 15, None),  # a ratio of 1.5 is still allowed, as in Moses
        (15, 10, None),
        (1, 1, "a side had fewer than 2 pieces"),
        (21, 20, "a side had more than 20 pieces"),
        (20, 21, "a side had more than 20 pieces"),
        (10, 16, "one side had more than 1.5 times the pieces of the other"),
        (16, 10, "one side had more than 1.5 times the pieces of the other"),
        (0, 5, EMPTY),
    ],
)
def test_limits(left, right, reason):
    pair = "w " * left, "w " * right
    assert complaint(pair, PAIR, "pieces", Limit(2, 20, 1.5)) == reason
    assert complaint(pair, PAIR, "pieces", None) == (reason if reason == EMPTY else None)


def test_each_side_may_have_a_limit_of_its_own(tmp_path):
    limit = described(tmp_path, "clean: {pieces: {max: [3, 2]}}").clean.pieces
    assert complaint(("a b c", "a b"), PAIR, "pieces", limit) is None
    assert complaint(("a b", "a b c"), PAIR, "pieces", limit) == "the target had more than 2 pieces"


def test_near_duplicates_of_held_out_pairs_are_left_out():
    held_out = [("Komm heim!", "Come home."), ("Größe 5?", "Size 5"), ("…", "!")]
    alike = [
        ("komm, heim …", "Please return."),  # the source
        ("Geh weg.", "“Come home!”"),  # the target
        ("GRÖSSE 5", "Measure it."),  # ß is ss in capitals
        ("Gro\u0308ße ５.", "How long?"),  # composed of two characters, and a digit of full width
    ]
    other = [
        ("Come home.", "Komm heim!"),  # the other way round
        ("Größe 6?", "Size 6"),
        ("Grosse 5 Namen", "Five names"),
        ("?!", "..."),  # no letters at all
    ]
    dropped = Counter()
    assert list(unlike([*alike, *other], held_out, dropped)) == other
    assert dropped == {NEAR_DUPLICATE: 4}


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        *[("Straße", "STRASSE", True), ("ﬁn", "FIN!", True), ("नमस्ते।", "नमस्ते", True), ("①", "1", True)],
        *[("नमस्त", "नमस्ते", False), ("für", "fur", False), ("5", "6", False)],
    ],
)
def test_letters(left, right, same):
    assert (letters(left) == letters(right)) == same and letters(left)


@pytest.mark.parametrize(
    ("language", "step", "before", "after"),
    [
        ("en", "punctuation", "“So”, he said… it’s – fine ( yes ) .", '"So," he said... it\'s - fine (yes).'),
        ("de", "punctuation", "„So“, sagte er.", '"So", sagte er.'),
        ("deu_Latn", "punctuation", "1\u00a0000", "1,000"),
        ("ro", "punctuation", "1\u00a0000", "1.000"),
        ("en", "non_printing", "a\u200bb\x07c\u00add\te", "a b c d e"),
        ("de", "lower_case", "ÄPFEL und Straße", "äpfel und straße"),
        ("de", "lower_case", "ÄPFEL [SEP] Straße", "äpfel [SEP] straße"),  # of triplets
    ],
)
def test_steps_of_normalisation(language, step, before, after):
    assert normalise([before], language, (step,)) == [after]


def test_steps_of_all_splits_or_some(tmp_path):
    assert normalise(["A\u200b“B”"], "en", ("punctuation", "non_printing", "lower_case")) == ['a "b"']
    description = described(tmp_path, "normalise: {every: [lower_case], train: [punctuation]}\n")
    assert description.steps("train") == ("punctuation",) and description.steps("big_test") == ("lower_case",)
    assert steps_of_new_text(description) == ("lower_case",)
    assert described(tmp_path, "").steps("train") == ()
