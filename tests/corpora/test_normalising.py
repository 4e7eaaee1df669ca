import pytest
from tiny import DESCRIPTION

from user_dir.corpora.description import read_description
from user_dir.corpora.normalising import check, normalise, steps_of
from user_dir.errors import UserError


def described(tmp_path, line):
    path = tmp_path / "corpus.yaml"
    path.write_text(DESCRIPTION + line, encoding="utf-8")
    return read_description(path)


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
    check(found)
    assert steps_of(found, "train") == ("punctuation",)
    assert steps_of(found, "big_test") == ("lower_case",)
    assert steps_of(described(tmp_path, ""), "train") == ()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "normalise: {test: [lower_case]}",
            "unknown split 'test'; choose from every, train, valid, big_test",
        ),
        (
            "normalise: {train: [lowercase]}",
            r"train is \['lowercase'\], but must be a list of punctuation, non_",
        ),
        ("normalise: {train: lower_case}", "train is 'lower_case', but must be a list"),
    ],
)
def test_bad_steps(tmp_path, line, complaint):
    with pytest.raises(UserError, match=f"line 11: normalise: {complaint}"):
        check(described(tmp_path, line + "\n"))
