"""Post-editing triplets: their text, their pieces, a BERT's vocabulary, and text for pretraining."""

import pytest
from tiny import joined, lines
from triplets import DESCRIPTION, MT, PE, SRC, bert_vocabulary, write_triplets

from user_dir.corpora import load_corpus
from user_dir.corpora.pieces import NewText, case_of
from user_dir.corpora.readers.triplets import source_line
from user_dir.corpora.stages import prepare
from user_dir.corpora.summary import summary
from user_dir.corpora.wordpiece import FILES, read_tokenizer, symbol_of
from user_dir.errors import UserError

BOTH = [f"{src} [SEP] {mt}" for src, mt in zip(SRC, MT)]


def described(tmp_path, *more: str, size: int = 90):
    """The tiny triplets, with more keys in their description."""
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True, exist_ok=True)
    keys = "".join(line + "\n" for line in (*more, *([f"vocabulary_size: {size}"] if size else [])))
    (folder / "corpus.yaml").write_text(DESCRIPTION + keys)
    write_triplets(tmp_path / "raw")
    return load_corpus("mine", folder.parent)


def test_a_source_line_is_src_and_mt(tmp_path):
    corpus = described(tmp_path)
    prepare(corpus, tmp_path / "raw")
    assert lines(corpus.text("train", "en")) == BOTH * 10
    assert lines(corpus.text("exam", "de")) == PE
    assert lines(corpus.uncorrected("exam")) == MT
    assert joined(corpus.segmented / "test.en") == BOTH
    assert all(row.split().count("▁[SEP]") == 1 for row in lines(corpus.segmented / "test.en"))
    symbols = [line.split()[0] for line in lines(corpus.bin / "dict.en.txt")]
    assert {"▁[SEP]", "<mask>"} <= set(symbols)
    assert "40 pairs" in summary(corpus)


@pytest.mark.parametrize("text", ["", "\t", "  \t ", " "])
def test_new_text_without_text_on_either_side_is_blank(text):
    assert source_line(text, 1, "") == ""


@pytest.mark.parametrize("text", ["a", "a\tb\tc", "a\t ", "\tb", "a [SEP]\tb"])
def test_new_text_that_is_no_pair_is_refused_with_its_number(text):
    with pytest.raises(UserError, match=r"in\.txt, line 7 "):
        source_line(text, 7, "in.txt")


def test_new_text_is_segmented_like_the_corpus(tmp_path):
    corpus = described(tmp_path, "normalise: {every: [lower_case]}")
    prepare(corpus, tmp_path / "raw")
    pairs = [f"{src}\t{mt}" for src, mt in zip(SRC, MT)]
    assert list(map(NewText(corpus, "en").pieces, [*pairs, ""])) == [*lines(corpus.segmented / "test.en"), ""]
    assert joined(corpus.segmented / "test.en")[0] == "the dog sleeps . [SEP] der hund schlafen ."
    assert case_of(corpus, "exam") == "ignored"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("train.mt", "a\n\nc\nd\n", r"raw/train.mt, line 2 is empty"),
        ("exam.src", "a\nb\nc [SEP] d\ne\n", r"raw/exam.src, line 3 contains \[SEP\], which is reserved"),
        ("dev.pe", "a\n<mask>\nc\nd\n", r"raw/dev.pe, line 2 contains <mask>"),
        ("dev.pe", "a\nb\nc\n", r"raw/dev.pe, line 4 is empty"),
        ("exam.mt", "a\n" * 5, r"raw/exam.src, line 5 is empty"),
    ],
)
def test_broken_triplets_are_refused_with_file_and_line(tmp_path, file, text, message):
    corpus = described(tmp_path)
    (tmp_path / "raw" / file).write_text(text)
    with pytest.raises(UserError, match=message):
        prepare(corpus, tmp_path / "raw")
    assert not (corpus.folder / "text" / "stamp.json").exists()


def test_pieces_of_a_berts_vocabulary(tmp_path):
    """Against WordPiece by the definition: from the left, the longest token of the vocabulary."""
    corpus = described(tmp_path, "wordpiece: bert/vocab.txt", size=0)
    tokens = bert_vocabulary()
    (tmp_path / "raw" / "bert").mkdir()
    (tmp_path / "raw" / "bert" / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    prepare(corpus, tmp_path / "raw")

    def greedy(word: str) -> list[str]:
        if word == "[SEP]":
            return ["▁[SEP]"]
        pieces, rest = [], word
        while rest:
            mark = "##" if pieces else ""
            end = next(i for i in range(len(rest), 0, -1) if mark + rest[:i] in tokens)
            pieces.append(("" if mark else "▁") + rest[:end])
            rest = rest[end:]
        return pieces

    expected = [" ".join(piece for word in line.split() for piece in greedy(word)) for line in BOTH]
    assert lines(corpus.segmented / "test.en") == expected
    assert joined(corpus.segmented / "test.de") == PE
    symbols = [line.split()[0] for line in lines(corpus.bin / "dict.en.txt")]
    ours = [symbol for symbol in symbols if not symbol.startswith("madeupword")]
    assert len(ours) == len(set(ours)) == len(tokens) - 3  # [PAD], [UNK] and [CLS] are fairseq's own
    segmented = NewText(corpus, "en").pieces("The dog ¿\tHund")
    assert segmented == "▁The ▁dog <unk> ▁[SEP] ▁H u n d"
    assert case_of(corpus, "exam") is None
    (tmp_path / "raw" / "bert" / "tokenizer_config.json").write_text("{}")  # which lower-cases
    prepare(corpus, tmp_path / "raw")
    assert corpus.pieces.name == "tokenizer.json" and case_of(corpus, "exam") == "ignored"
    with pytest.raises(UserError, match="--vocab-size 50: mine has pieces that are not learned"):
        prepare(corpus, tmp_path / "raw", 50)


LETTERS = sorted(set("abcdefghijklmnopqrstuvwxyzÄäÖöÜüéABCDGHIĐ中国"))
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hund", "katze", "Hund", "##en"]
TOKENS += [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
SENTENCES = [
    "Der HUND sieht die Katzen",
    "Äpfel é e\u0301 Đ ß",
    "das 中国 isst",
    "GroßeHunden \x01 a\u200bb ☃",
]


def files_of(folder):
    return {name: folder / name for name in FILES if (folder / name).is_file()}


@pytest.mark.parametrize(
    ("settings", "old"),
    [
        ({}, True),
        ({"do_lower_case": False}, False),
        ({"strip_accents": False}, True),
        ({"tokenize_chinese_chars": False}, False),
    ],
)
def test_pieces_are_those_of_transformers(tmp_path, settings, old):
    """Of text without punctuation, where BERT would split; ``old``: a folder of vocab.txt and settings."""
    from transformers import BertTokenizer

    theirs = BertTokenizer(vocab={token: row for row, token in enumerate(TOKENS)}, **settings)
    theirs.save_pretrained(tmp_path)
    if old:
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    tokenizer = read_tokenizer(files_of(tmp_path))
    assert tokenizer.tokens == TOKENS
    (tmp_path / "written").mkdir()
    tokenizer.write(tmp_path / "written")
    ours = read_tokenizer(files_of(tmp_path / "written"))
    expected = [[symbol_of(token) for token in theirs.tokenize(text)] for text in SENTENCES]
    assert ours.encode(SENTENCES) == expected
    assert ours.rules == tokenizer.rules


def test_pieces_and_dictionary_of_another_corpus(tmp_path):
    """Also in another order of frequency: a model trained on one can then be trained on with the other."""
    first = described(tmp_path)
    folder = tmp_path / "data" / "second"
    folder.mkdir()
    text = DESCRIPTION.replace("train.{side}", "exam.{side}") + "pieces_of: mine\n"
    (folder / "corpus.yaml").write_text(text)
    second = load_corpus("second", tmp_path / "data")
    with pytest.raises(UserError, match="mine is not prepared"):
        prepare(second, tmp_path / "raw")
    for size in (None, 80):
        prepare(first, tmp_path / "raw", size)
        prepare(second, tmp_path / "raw")
        assert second.spm_model.read_bytes() == first.spm_model.read_bytes()
        dictionaries = [corpus.bin / "dict.de.txt" for corpus in (first, second)]
        assert dictionaries[0].read_bytes() == dictionaries[1].read_bytes()


def test_pretraining_text(tmp_path):
    corpus = described(tmp_path, "pretraining: [mono.de, {src: train.src, mt: train.pe}]")
    (tmp_path / "raw" / "mono.de").write_text("Ein Satz .\n\n" * 100)
    prepare(corpus, tmp_path / "raw")
    sentences = ["Ein Satz ."] * 100 + [f"{src} [SEP] {pe}" for src, pe in zip(SRC * 10, PE * 10)]
    folder = corpus.folder / "text" / "pretraining"
    assert lines(folder / "valid.txt") == [sentences[99]]
    assert lines(folder / "train.txt") == sentences[:99] + sentences[100:]
    assert joined(corpus.segmented / "train.pretraining") == lines(folder / "train.txt")
    assert f"139 lines in {corpus.pretraining}/train" in summary(corpus)
    names = {path.name for path in corpus.pretraining.iterdir()}
    assert names >= {"dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"}
