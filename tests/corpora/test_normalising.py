import pytest
from tiny import described

from user_dir.corpora.normalising import normalise, steps_of


@pytest.mark.parametrize(
    ("language", "step", "before", "after"),
    [
        ("en", "punctuation", "“So”, he said… it’s – fine ( yes ) .", '"So," he said... it\'s - fine (yes).'),
        ("de", "punctuation", "„So“, sagte er.", '"So", sagte er.'),
        ("de", "punctuation", "1\u00a0000", "1,000"),
        ("ro", "punctuation", "1\u00a0000", "1.000"),
        ("deu_Latn", "punctuation", "1\u00a0000", "1,000"),
        ("DE", "punctuation", "1\u00a0000", "1,000"),
        ("en", "non_printing", "a\u200bb\x07c\u00add\te", "a b c d e"),
        ("de", "lower_case", "ÄPFEL und Straße", "äpfel und straße"),
        ("de", "punctuation", "", ""),
    ],
)
def test_steps(language, step, before, after):
    assert normalise([before], language, (step,)) == [after]


def test_steps_are_applied_in_order():
    assert normalise(["A\u200b“B”"], "en", ("punctuation", "non_printing", "lower_case")) == ['a "b"']


def test_steps_of_all_splits_or_some(tmp_path):
    found = described(tmp_path, "normalise: {every: [lower_case], train: [punctuation]}\n")
    assert steps_of(found, "train") == ("punctuation",)
    assert steps_of(found, "big_test") == ("lower_case",)
    assert steps_of(described(tmp_path, ""), "train") == ()
