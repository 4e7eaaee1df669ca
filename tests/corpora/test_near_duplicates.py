"""Training text without the sentences that are held out; the rules are written down here once more."""

import zipfile

import pytest
import releases

from user_dir.corpora import load_corpus
from user_dir.corpora.near_duplicates import letters
from user_dir.corpora.preparation import prepare
from user_dir.corpora.stamps import read_stamp

HELD_OUT = [("Komm heim!", "Come home."), ("Größe 5?", "Size 5"), ("…", "!")]
ALIKE = [
    ("komm, heim …", "Please return."),  # the source
    ("Geh weg.", "“Come home!”"),  # the target
    ("GRÖSSE 5", "Measure it."),  # ß is ss in capitals
    ("Gro\u0308ße ５.", "How long?"),  # composed of two characters, and a digit of full width
]
UNLIKE = [
    ("Come home.", "Komm heim!"),  # the other way round
    ("Größe 6?", "Size 6"),
    ("Grosse 5 Namen", "Five names"),
    ("?!", "..."),  # no letters at all
]


pytestmark = pytest.mark.usefixtures("no_fairseq")


def joint(raw, extra=()) -> None:
    """A miniature of tatoeba-de-en and msdocs-de-en."""
    for folder, seed in (("tatoeba-de-en", 1), ("msdocs-de-en", 2)):
        (raw / folder).mkdir()
        splits = {
            "train": [*extra, *releases.german(80, seed)],
            "valid": HELD_OUT[:2],
            "test": [*HELD_OUT[2:], (f"Nur in {folder}.", f"Only in {folder}.")],
        }
        for split, pairs in splits.items():
            for language, side in zip(("de", "en"), releases.columns(pairs)):
                (raw / folder / f"{split}.{language}").write_bytes(releases.lines(side))


def test_the_joint_corpus_has_both_training_texts_and_both_test_sets(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    joint(raw, ALIKE + UNLIKE)
    corpus = load_corpus("tatmsdocs-de-en", tmp_path / "data")
    prepare(corpus, raw, 300, workers=1)
    report = read_stamp(corpus.folder / "text" / "stamp.json")["report"]["train"]
    train = list(zip(*(corpus.text("train", each).read_text("utf-8").splitlines() for each in ("de", "en"))))
    assert train == [*UNLIKE, *releases.german(80, 1), *UNLIKE, *releases.german(80, 2)]
    assert report["pairs"] == len(train) and sum(report["dropped"].values()) == 2 * len(ALIKE)
    assert list(corpus.test_sets) == ["test_tatoeba", "test_msdocs"]
    assert corpus.text("test_msdocs", "en").read_text("utf-8").splitlines()[1] == "Only in msdocs-de-en."
    assert len(corpus.text("valid", "de").read_text("utf-8").splitlines()) == 4


@pytest.mark.parametrize("name", ["tatoeba-de-en", "msdocs-de-en"])
def test_each_corpus_alone(tmp_path, name):
    (tmp_path / "raw").mkdir()
    joint(tmp_path / "raw", ALIKE)
    corpus = load_corpus(name, tmp_path / "data")
    prepare(corpus, tmp_path / "raw" / name, 300, workers=1)
    assert read_stamp(corpus.folder / "text" / "stamp.json")["report"]["train"]["pairs"] == 80


def test_an_export_whose_validation_set_is_held_out_of_it(tmp_path):
    """Of every 80th pair, which is held out, the other variants are not trained on."""
    pairs = [(f"Der {number}. Satz.", f"Sentence {number}.") for number in range(1, 161)]
    pairs += [("der 80. Satz", "The 80th"), ("Noch einer!", "sentence 160")]
    rows = [f"{english}\t{german}\tCC-BY 2.0 #{i}" for i, (german, english) in enumerate(pairs)]
    (tmp_path / "raw").mkdir()
    with zipfile.ZipFile(tmp_path / "raw" / "deu-eng.zip", "w") as archive:
        archive.writestr("_about.txt", "about")
        archive.writestr("deu.txt", releases.lines([*rows, ""]))
    corpus = load_corpus("tatoeba-export-de-en", tmp_path / "data")
    prepare(corpus, tmp_path / "raw", 120, workers=1)
    assert corpus.text("valid", "de").read_text("utf-8").splitlines() == ["Der 80. Satz.", "Der 160. Satz."]
    train = corpus.text("train", "en").read_text("utf-8").splitlines()
    assert len(train) == 158 and not {"The 80th", "sentence 160"} & set(train)


@pytest.mark.parametrize(
    ("left", "right"), [("Straße", "STRASSE"), ("ﬁn", "FIN!"), ("नमस्ते।", "नमस्ते"), ("①", "1")]
)
def test_the_same_letters(left, right):
    assert letters(left) == letters(right) != ""


@pytest.mark.parametrize(("left", "right"), [("नमस्त", "नमस्ते"), ("für", "fur"), ("5", "6")])
def test_other_letters(left, right):
    assert letters(left) != letters(right)
