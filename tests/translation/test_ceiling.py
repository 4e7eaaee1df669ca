"""The best possible score of a corpus, and its record."""

import json

import numpy as np
import pytest
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from tiny_splits import described

from user_dir.translation.ceiling import ceiling_of, corpus_ceilings
from user_dir.translation.scored_split import ScoredSplit

TEXT = {
    "de": ["Der Hund schläft heute im Haus.", "Wo ist das Kind jetzt?"],
    "en": ["The Dog sleeps in the house today.", "Where is the child now?"],
}


def prepared(folder, *settings, change=str, splits=("test",)):
    """A corpus whose data are its text in characters, each changed."""
    corpus = described(folder, *settings)
    words = Dictionary()
    sides = {
        language: [list("▁" + change(line).replace(" ", "▁")) for line in lines]
        for language, lines in TEXT.items()
    }
    for line in [*sides["de"], *sides["en"]]:
        for symbol in line:
            words.add_symbol(symbol)
    (corpus.folder / "text").mkdir()
    corpus.bin.mkdir()
    (corpus.bin / "stamp.json").write_text("{}")
    for language in corpus.languages:
        words.save(str(corpus.bin / f"dict.{language}.txt"))
        for split in splits:
            corpus.text(split, language).write_text("".join(f"{each}\n" for each in TEXT[language]))
            prefix = str(corpus.bin / f"{split}.de-en.{language}")
            builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", np.int32)
            for line in sides[language]:
                builder.add_item(words.encode_line(" ".join(line), append_eos=True, add_if_not_exist=False))
            builder.finalize(f"{prefix}.idx")
    return corpus


def test_what_pieces_keep_scores_100_in_both_directions(tmp_path):
    found = corpus_ceilings(prepared(tmp_path))
    assert [(each.split, each.language) for each in found] == [("test", "en"), ("test", "de")]
    assert [each.bleu for each in found] == [pytest.approx(100)] * 2
    assert not any(each.example for each in found)


def test_what_pieces_fold_does_not(tmp_path):
    """Independently: sacrebleu on the folded text."""
    import sacrebleu

    corpus = prepared(tmp_path, "normalization: nmt_nfkc_cf", change=str.lower)
    found = {each.language: each for each in corpus_ceilings(corpus)}
    for language, lines in TEXT.items():
        expected = sacrebleu.corpus_bleu([line.lower() for line in lines], [lines]).score
        assert found[language].bleu == pytest.approx(expected, abs=0.01) and expected < 99
        for word in (language, "nmt_nfkc_cf", lines[0], lines[0].lower()):
            assert word in str(found[language])


def test_a_split_is_scored_as_its_evaluation(tmp_path):
    corpus = prepared(tmp_path, change=str.lower, splits=("test", "valid"))
    first, _ = corpus_ceilings(corpus)
    assert ceiling_of(corpus, ScoredSplit(corpus, "test", ("de", "en"))) == first
    kept = json.loads((corpus.folder / "ceilings.json").read_text())["ceilings"]
    assert kept[0]["bleu"] == first.bleu and len(kept) == 2
    other = ceiling_of(corpus, ScoredSplit(corpus, "test", ("de", "en"), tokenize="char"))
    assert other.tokenizer == "char" and other.bleu != first.bleu
    assert ceiling_of(corpus, ScoredSplit(corpus, "valid", ("de", "en"))).split == "valid"


def test_sentences_left_out_do_not_count(tmp_path):
    corpus = prepared(tmp_path, change=lambda line: line.upper() if line.endswith("?") else line)
    split = ScoredSplit(corpus, "test", ("de", "en"))
    assert ceiling_of(corpus, split).bleu < 80 and ceiling_of(corpus, split, [1]).bleu == pytest.approx(100)
    assert ceiling_of(corpus, split, [0]).bleu < 20
    assert TEXT["en"][1] in ceiling_of(corpus, split, [0]).example


def test_without_test_sets_it_is_that_of_valid(tmp_path, monkeypatch):
    monkeypatch.setattr("tiny_splits.SPLITS", "splits: {train: 'a.{language}', valid: 'b.{language}'}\n")
    assert {each.split for each in corpus_ceilings(prepared(tmp_path, splits=("valid",)))} == {"valid"}
