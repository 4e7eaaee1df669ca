"""Triplet corpora, their pieces and their pretraining text; fairseq does not run here."""

import pytest
from tiny import joined, lines
from triplets import DESCRIPTION, MT, PE, SRC, bert_vocabulary, write_triplets

from user_dir.corpora import load_corpus
from user_dir.corpora.new_text import NewText
from user_dir.corpora.preparation import prepare
from user_dir.corpora.readers.left_out import BLANK, OUTSIDE
from user_dir.corpora.readers.triplets import source_line
from user_dir.corpora.summary import summary
from user_dir.errors import UserError

pytestmark = pytest.mark.usefixtures("no_fairseq")


def described(tmp_path, *more: str, size: int = 90):
    """The tiny triplets, with more keys in their description."""
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True, exist_ok=True)
    keys = "".join(line + "\n" for line in (*more, *([f"vocabulary_size: {size}"] if size else [])))
    (folder / "corpus.yaml").write_text(DESCRIPTION + keys)
    write_triplets(tmp_path / "raw")
    return load_corpus("mine", folder.parent)


def changed(corpus, old: str, new: str):
    """The corpus with other splits."""
    path = corpus.folder / "corpus.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return load_corpus("mine", corpus.folder.parent)


@pytest.mark.parametrize("text", ["", "\t", "  \t ", " "])
def test_a_line_without_text_on_either_side_is_blank(text):
    assert source_line(text, 1, "") == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "has 0 tabs; write the source sentence, a tab, and its translation"),
        ("a\tb\tc", "has 2 tabs"),
        ("a\t ", "has no translation"),
        ("\tb", "has no source sentence"),
        ("a [SEP]\tb", r"contains \[SEP\]"),
    ],
)
def test_a_line_that_is_no_pair_is_refused_with_its_number(text, message):
    with pytest.raises(UserError, match=rf"in\.txt, line 7 {message}"):
        source_line(text, 7, "in.txt")


def test_a_source_line_is_src_and_mt(tmp_path):
    corpus = described(tmp_path)
    prepare(corpus, tmp_path / "raw", workers=1)
    both = [f"{src} [SEP] {mt}" for src, mt in zip(SRC, MT)]
    assert lines(corpus.text("train", "en")) == both * 10
    assert lines(corpus.text("exam", "de")) == PE
    assert lines(corpus.uncorrected("exam")) == MT
    assert joined(corpus.segmented / "test.en") == both
    assert all(row.split().count("▁[SEP]") == 1 for row in lines(corpus.segmented / "test.en"))
    symbols = [line.split()[0] for line in lines(corpus.bin / "dict.en.txt")]
    assert {"▁[SEP]", "<mask>"} <= set(symbols)
    assert "40 pairs" in summary(corpus)


def test_new_text_is_segmented_like_the_corpus(tmp_path):
    corpus = described(tmp_path, "normalise: {every: [lower_case]}")
    prepare(corpus, tmp_path / "raw", workers=1)
    given = [f"{src}\t{mt}" for src, mt in zip(SRC, MT)]
    new = NewText(corpus, "en")
    assert list(new.pieces([*given, ""])) == [*lines(corpus.segmented / "test.en"), ""]
    with pytest.raises(UserError, match=r"talk\.txt, line 8 has 0 tabs"):
        list(new.pieces(["a\tb", "no tab"], 7, "talk.txt"))
    assert joined(corpus.segmented / "test.en")[0] == "the dog sleeps . [SEP] der hund schlafen ."


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("train.mt", "a\n\nc\nd\n", r"raw/train.mt, line 2 is empty; remove the triplet from all files"),
        ("exam.src", "a\nb\nc [SEP] d\ne\n", r"raw/exam.src, line 3 contains \[SEP\], which is reserved"),
        ("dev.pe", "a\n<mask>\nc\nd\n", r"raw/dev.pe, line 2 contains <mask>"),
        ("dev.pe", "a\nb\nc\n", r"raw/dev.pe has 3 lines, but .*raw/dev.src has a line 4"),
        ("exam.mt", "a\n" * 5, r"raw/exam.src has 4 lines, but .*raw/exam.mt has a line 5"),
    ],
)
def test_broken_triplets_are_refused_with_file_and_line(tmp_path, file, text, message):
    corpus = described(tmp_path)
    (tmp_path / "raw" / file).write_text(text)
    with pytest.raises(UserError, match=message):
        prepare(corpus, tmp_path / "raw", workers=1)
    assert not (corpus.folder / "text" / "stamp.json").exists()


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (
            "{train: 'a.{language}', valid: 'b.{side}'}",
            r"line 4: splits: train is 'a.\{language\}', but must",
        ),
        ("{train: {src: a, mt: b}, valid: 'b.{side}'}", "or a name for each of src, mt, pe"),
        ("{train: 'a.{side}', valid: {file: 'b.{side}', reference: 'c.{side}'}}", "without references"),
        ("{train: {file: 'a.{side}', lines: 3-2}, valid: 'b.{side}'}", "must be FIRST-LAST, counted from 1"),
        ("{train: {file: 'train.{side}', lines: 39-41}, valid: 'dev.{side}'}", "which has 40 lines"),
    ],
)
def test_wrong_descriptions_are_refused(tmp_path, splits, message):
    old = next(line for line in DESCRIPTION.splitlines() if line.startswith("splits"))
    corpus = changed(described(tmp_path), old, f"splits: {splits}")
    with pytest.raises(UserError, match=message):
        prepare(corpus, tmp_path / "raw", workers=1)


def test_some_lines_of_a_file(tmp_path):
    corpus = changed(described(tmp_path), '"train.{side}"', "{file: 'train.{side}', lines: 2-7}")
    prepare(corpus, tmp_path / "raw", workers=1)
    assert lines(corpus.text("train", "de")) == (PE * 2)[1:7]


def test_both_sides_have_limits_of_their_own(tmp_path):
    corpus = described(tmp_path, "clean: {words: {max: [11, 4]}}")
    prepare(corpus, tmp_path / "raw", workers=1)  # 9, 12, 11 and 11 words; 4, 6, 5 and 5
    assert lines(corpus.text("train", "de")) == [PE[0]] * 10
    told = summary(corpus)
    assert "10 dropped: the source had more than 11 words" in told
    assert "20 dropped: the target had more than 4 words" in told


def test_pieces_of_a_berts_vocabulary(tmp_path):
    """Against WordPiece by the definition: from the left, the longest token of the vocabulary."""
    corpus = described(tmp_path, "wordpiece: bert/vocab.txt", size=0)
    tokens = bert_vocabulary()
    (tmp_path / "raw" / "bert").mkdir()
    (tmp_path / "raw" / "bert" / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    prepare(corpus, tmp_path / "raw", workers=1)

    def greedy(word: str) -> list[str]:
        if word == "[SEP]":
            return ["▁[SEP]"]
        found, rest = [], word
        while rest:
            mark = "##" if found else ""
            end = next(i for i in range(len(rest), 0, -1) if mark + rest[:i] in tokens)
            found.append(("" if mark else "▁") + rest[:end])
            rest = rest[end:]
        return found

    expected = [
        " ".join(p for w in f"{src} [SEP] {mt}".split() for p in greedy(w)) for src, mt in zip(SRC, MT)
    ]
    assert lines(corpus.segmented / "test.en") == expected
    assert joined(corpus.segmented / "test.de") == PE
    symbols = [line.split()[0] for line in lines(corpus.bin / "dict.en.txt")]
    ours = [symbol for symbol in symbols if not symbol.startswith("madeupword")]
    assert len(ours) == len(set(ours)) == len(tokens) - 3  # [PAD], [UNK] and [CLS] are fairseq's own
    assert f"{len(tokens)} pieces" in summary(corpus)
    (found,) = NewText(corpus, "en").pieces(["The dog ¿\tHund"])
    assert found == "▁The ▁dog <unk> ▁[SEP] ▁H u n d"
    with pytest.raises(UserError, match="--vocab-size 50: mine has the vocabulary of a BERT"):
        prepare(corpus, tmp_path / "raw", 50, workers=1)


def test_pieces_and_dictionary_of_another_corpus(tmp_path):
    """Also in another order of frequency: a model trained on one can then be trained on with the other."""
    first = described(tmp_path)
    folder = tmp_path / "data" / "second"
    folder.mkdir()
    (folder / "corpus.yaml").write_text(
        DESCRIPTION.replace("train.{side}", "exam.{side}") + "pieces_of: mine\n"
    )
    second = load_corpus("second", tmp_path / "data")
    with pytest.raises(UserError, match="pieces_of: mine is not prepared; prepare it first"):
        prepare(second, tmp_path / "raw", workers=1)
    prepare(first, tmp_path / "raw", workers=1)
    prepare(second, tmp_path / "raw", workers=1)
    assert second.spm_model.read_bytes() == first.spm_model.read_bytes()
    dictionaries = [corpus.bin / "dict.de.txt" for corpus in (first, second)]
    assert dictionaries[0].read_bytes() == dictionaries[1].read_bytes()
    assert summary(second).count(f"{len(lines(dictionaries[0])) + 4} symbols") == 1
    with pytest.raises(UserError, match="--vocab-size 50: second has the pieces of mine"):
        prepare(second, tmp_path / "raw", 50, workers=1)
    prepare(first, tmp_path / "raw", 80, workers=1)
    prepare(second, tmp_path / "raw", workers=1)
    assert second.spm_model.read_bytes() == first.spm_model.read_bytes()


def test_pretraining_text(tmp_path):
    corpus = described(tmp_path, "pretraining: [mono.de, {src: train.src, mt: train.pe, lines: 3-30}]")
    (tmp_path / "raw" / "mono.de").write_text("Ein Satz .\n\n" * 100)
    prepare(corpus, tmp_path / "raw", workers=1)
    sentences = ["Ein Satz ."] * 100 + [f"{src} [SEP] {pe}" for src, pe in zip(SRC * 10, PE * 10)][2:30]
    folder = corpus.folder / "text" / "pretraining"
    assert lines(folder / "valid.txt") == [sentences[99]]
    assert lines(folder / "train.txt") == sentences[:99] + sentences[100:]
    assert joined(corpus.segmented / "train.pretraining") == lines(folder / "train.txt")
    told = summary(corpus)
    assert "127 lines, 1 for validation" in told
    outside = len(SRC) * 10 - 28
    assert f"{100:>10,} dropped: {BLANK}" in told and f"{outside:>10,} dropped: {OUTSIDE}" in told


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{src: a}", "must be a file name, or files named src and mt"),
        ("mono.de", "the files have 2 lines that are not empty; at least 100 are needed"),
        ("broken.de", r"raw/broken.de, line 2 contains <mask>"),
    ],
)
def test_wrong_pretraining_text_is_refused(tmp_path, entry, message):
    corpus = described(tmp_path, f"pretraining: [{entry}]")
    (tmp_path / "raw" / "mono.de").write_text("a\nb\n")
    (tmp_path / "raw" / "broken.de").write_text("a\n<mask>\n")
    with pytest.raises(UserError, match=message):
        prepare(corpus, tmp_path / "raw", workers=1)
