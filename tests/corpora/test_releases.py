"""The corpora of the paper, from miniatures of their releases to binarised data."""

import re
import shutil
import zipfile

import pytest
import releases
from releases import EMPTY, ODD, RELEASES, TEST, TRAIN, UNLIKE, VALID, columns
from tiny import joined, lines, times

from user_dir.corpora import load_corpus
from user_dir.corpora.stages import prepare
from user_dir.corpora.stamps import read_stamp
from user_dir.corpora.summary import summary


def prepared(name, folder):
    """A corpus in ``folder / "data"``, from a miniature in ``folder / "raw"``."""
    raw = folder / "raw"
    raw.mkdir()
    RELEASES[name](raw)
    corpus = load_corpus(name, folder / "data")
    prepare(corpus, raw, releases.vocabulary_size(name))
    return corpus


@pytest.fixture
def whole(once):
    """``whole(name)``: a corpus that is prepared once; tests must not change it."""

    def load(name):
        folder = once(f"miniature-{name}", lambda folder: prepared(name, folder))
        return load_corpus(name, folder / "data")

    return load


def dropped(corpus) -> dict[str, int]:
    text, made = (read_stamp(corpus.folder / name / "stamp.json")["report"] for name in ("text", "bin"))
    return {**text["train"]["dropped"], **made["pieces"]["train"]["dropped"]}


def pieces_joined(corpus, subset: str, language: str) -> list[str]:
    return joined(corpus.segmented / f"{subset}.{language}")


def test_iwslt17(whole):
    corpus = whole("iwslt17-de-en")
    told = releases.described(TRAIN + len(ODD) + len(EMPTY) + 1)
    # Lines of metadata are no sentences, and not counted.
    assert dropped(corpus) == {"a side was empty": 3, "a side had more than 250 pieces": 1}
    train = lines(corpus.text("train", "de"))
    assert len(train) == TRAIN + len(ODD) + 1 + told
    assert train[:3] == [
        "Talk 0",
        "TED Talk Subtitles and Transcript: Of this & that.",
        releases.german(TRAIN, 1)[0][0],
    ]
    for source, target in ODD:  # exactly as released
        at = train.index(source)
        assert lines(corpus.text("train", "en"))[at] == target
    assert len(lines(corpus.segmented / "train.de")) == TRAIN + len(ODD) + told
    assert "Käse für alle." in pieces_joined(corpus, "train", "de")  # normalised to one form
    assert lines(corpus.text("valid", "en")) == columns(releases.german(VALID, 2))[1]
    assert list(corpus.test_sets)[:3] == ["tst2017", "tst2016", "tst2015"]
    assert len(corpus.test_sets) == 8
    for year in (2016, 2017):
        assert lines(corpus.text(f"tst{year}", "de"))[-1] == 'Zu R&D & "mehr".'
        assert lines(corpus.reference(f"tst{year}", "en"))[:TEST] == columns(releases.german(TEST, year))[1]
    assert not corpus.description.normalise


def test_iwslt14(whole):
    corpus = whole("iwslt14-de-en")
    total = TRAIN + len(ODD) + releases.described(TRAIN + len(ODD) + len(EMPTY) + 2)
    report = dropped(corpus)
    unlike = report.pop("one side had more than 1.5 times the Moses tokens of the other")
    assert report == {"a side was empty": 3, "a side had more than 175 Moses tokens": 1}
    train, valid = (lines(corpus.text(subset, "en")) for subset in ("train", "valid"))
    assert 1 <= unlike < 10 and UNLIKE[1] not in train
    assert len(train) + len(valid) == total - (unlike - 1)
    assert len(valid) == (len(train) + len(valid)) // 23
    assert lines(corpus.normalised("train", "en")) == [line.lower() for line in train]
    assert lines(corpus.text("test", "de")) == [
        row[0] for i in range(5) for row in releases.german(TEST, 20 + i)
    ]
    assert all(row == row.lower() for row in pieces_joined(corpus, "test", "de"))


def test_every_23rd_cleaned_pair_is_held_out_for_validation(whole):
    corpus = whole("iwslt14-de-en")
    train, valid = (lines(corpus.text(subset, "de")) for subset in ("train", "valid"))
    merged = list(train)
    for i, line in enumerate(valid, start=1):
        merged.insert(23 * i - 1, line)
    released = [pair[0] for pair in releases.german(TRAIN, 1)]
    assert [line for line in merged if line in released] == [line for line in released if line in merged]
    assert not set(train) & set(valid) & set(released)


def test_kftt(whole):
    corpus = whole("kftt-ja-en")
    assert dropped(corpus) == {}
    assert len(lines(corpus.text("train", "ja"))) == TRAIN
    assert lines(corpus.text("test", "en"))[0] == "The temple of Kyoto was built in 4000 ."
    assert lines(corpus.reference("test", "en"))[0] == "The temple of Kyoto was built in 4000."
    assert lines(corpus.reference("valid", "ja"))[0] == "京都の寺は3000年に建てられた。"
    assert corpus.reference("train", "ja") == corpus.text("train", "ja")
    assert pieces_joined(corpus, "test", "ja")[0] == "京都 の 寺 は 4000 年 に 建て られ た 。"


def test_wmt16(whole):
    corpus = whole("wmt16-ro-en")
    report = dropped(corpus)
    assert report["a side was empty"] == 3 and report["a side had more than 250 pieces"] == 1
    assert UNLIKE[0] in lines(corpus.text("train", "ro"))  # dropped later, by the filter on pieces
    assert "This is a translation" not in "".join(pieces_joined(corpus, "train", "en"))
    assert 'Câinele 1 vede pisica și "casa" mare.' in lines(corpus.normalised("train", "ro"))
    assert "\"So,\" he said - and 'left'..." in lines(corpus.normalised("train", "en"))
    test = columns(releases.romanian(TEST, 2000))
    assert (
        lines(corpus.text("newstest2016", "ro")) == lines(corpus.normalised("newstest2016", "ro")) == test[0]
    )
    assert lines(corpus.text("valid", "en")) == columns(releases.romanian(VALID, 1000))[1]


def test_wmt14(whole):
    corpus = whole("wmt14-en-de")
    assert corpus.languages == ("en", "de")
    report = dropped(corpus)
    assert report["a side was empty"] == 3 and report["a side had more than 250 pieces"] == 1
    first, second = (releases.german(TRAIN, 1)[start::3] for start in (0, 1))
    train = lines(corpus.text("train", "de"))
    assert train[: TRAIN // 3 + len(ODD)] == [pair[0] for pair in first + ODD]
    assert train[TRAIN // 3 + len(ODD)] == second[0][0]
    assert lines(corpus.text("newstest2014", "de"))[-1] == "R&D & „mehr“"
    told = summary(corpus)
    assert re.search(r"train +\d+ pairs\n +3 dropped: a side was empty\n", told)
    assert "dropped: one side had more than 1.5 times the pieces of the other" in told
    assert "next: python scripts/train.py configs/wmt14-en-de/alpha_entmax.yaml" in told


def test_a_corpus_that_was_moved_is_not_made_again(whole, tmp_path):
    name = "iwslt14-de-en"
    shutil.copytree(whole(name).folder.parents[1], tmp_path, dirs_exist_ok=True)
    corpus = load_corpus(name, tmp_path / "data")
    before = times(corpus.folder)
    prepare(corpus, tmp_path / "raw")
    shutil.rmtree(tmp_path / "raw")
    prepare(corpus)  # the release is not needed any more
    assert times(corpus.folder) == before


HELD_OUT = [("Komm heim!", "Come home."), ("Größe 5?", "Size 5"), ("…", "!")]
ALIKE = [("komm, heim …", "Please return."), ("GRÖSSE 5", "Measure it.")]
OTHER = [("Come home.", "Komm heim!"), ("?!", "...")]


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
    joint(raw, ALIKE + OTHER)
    corpus = load_corpus("tatmsdocs-de-en", tmp_path / "data")
    prepare(corpus, raw, 300)
    report = read_stamp(corpus.folder / "text" / "stamp.json")["report"]["train"]
    train = list(zip(*(corpus.text("train", side).read_text("utf-8").splitlines() for side in ("de", "en"))))
    assert train == [*OTHER, *releases.german(80, 1), *OTHER, *releases.german(80, 2)]
    assert report["pairs"] == len(train) and sum(report["dropped"].values()) == 2 * len(ALIKE)
    assert list(corpus.test_sets) == ["test_tatoeba", "test_msdocs"]
    assert corpus.text("test_msdocs", "en").read_text("utf-8").splitlines()[1] == "Only in msdocs-de-en."
    assert len(corpus.text("valid", "de").read_text("utf-8").splitlines()) == 4


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
    prepare(corpus, tmp_path / "raw", 120)
    assert corpus.text("valid", "de").read_text("utf-8").splitlines() == ["Der 80. Satz.", "Der 160. Satz."]
    train = corpus.text("train", "en").read_text("utf-8").splitlines()
    assert len(train) == 158 and not {"The 80th", "sentence 160"} & set(train)
