"""A model in one object: its translations are the translator's, its attention that of the report."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from fairseq.data import Dictionary
from helpers import NUM_WORDS
from tiny_release import SENTENCES, tiny_checkpoint, tiny_corpus

import user_dir
from user_dir.analysis.maps import SIDES
from user_dir.analysis.translated import analyse_translations
from user_dir.corpora.segment import vocabulary
from user_dir.errors import UserError
from user_dir.translation.translator import open_translator


def loaded(folder: Path) -> tuple:
    """A model that is loaded from files in a folder, and a translator by fairseq over the same model."""
    corpus, checkpoint = tiny_corpus(folder / "data"), tiny_checkpoint(folder / "last.pt")
    words = Dictionary()
    for piece in vocabulary(corpus.pieces)[:NUM_WORDS]:
        words.add_symbol(piece)
    for language in corpus.languages:
        words.save(str(corpus.bin / f"dict.{language}.txt"))
    model = user_dir.load_model(checkpoint, corpus=corpus, cpu=True, beam=2)
    return model, open_translator([checkpoint], corpus, cpu=True, beam=2, by_fairseq=True)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("loaded"))


def test_a_sentence_or_a_list_is_translated(opened):
    model, translator = opened
    expected = [best.text for best, *_ in translator(SENTENCES[:3])]
    assert model.translate([*SENTENCES[:3], ""]) == [*expected, ""]
    assert model.translate(SENTENCES[0]) == expected[0]


def test_only_attention_reads_the_files_again(tmp_path):
    model, translator = loaded(tmp_path)
    shutil.rmtree(tmp_path)
    assert model.translate(SENTENCES[0]) == translator([SENTENCES[0]])[0][0].text
    with pytest.raises(UserError, match="changed or removed"):
        model.attention(SENTENCES[0])


def test_attention_is_that_of_a_report_on_the_same_sentences(opened, tmp_path):
    model, translator = opened
    texts = SENTENCES[:3]
    sources, targets = translator.encode(texts), [best.tokens for best, *_ in translator(texts)]
    (loaded,), task = translator.search.models, translator.search.task
    given = translator.corpus, loaded, task, sources, targets, texts, tmp_path / "maps.npz"
    expected = analyse_translations("x", tiny_checkpoint(tmp_path / "last.pt"), *given).maps
    for number, text in enumerate(texts):
        found = model.attention(text)
        assert (found.source, found.target, found.text) == (
            expected[number].source,
            expected[number].target,
            text,
        )
        for kind, weights in found.weights.items():
            np.testing.assert_allclose(weights, expected[number].weights[kind], atol=1e-6)
            sides = (len(getattr(found, side)) for side in SIDES[kind])
            assert weights.shape[2:] == tuple(sides)
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_the_decoder_reads_a_given_translation(opened):
    model, translator = opened
    found = model.attention(SENTENCES[0], "The dog sleeps.")
    known, target = set(translator.dictionaries[1].symbols), found.target[:-1]
    assert len(set(target) & known - {"<unk>"}) >= 2 and found.target[-1] == "</s>"
    assert re.fullmatch(
        "".join(".+" if piece == "<unk>" else re.escape(piece) for piece in target), "▁The▁dog▁sleeps."
    )
    assert found.target_input == ["</s>", *found.target[:-1]]
    for given in ((" ", None), (SENTENCES[0], "a" * 5000)):
        with pytest.raises(ValueError):
            model.attention(*given)


def test_what_is_no_model_is_refused(tmp_path):
    for name in ("no-such-model", str(tmp_path / "none.tar"), tmp_path / "none.pt"):
        with pytest.raises(UserError, match=r"no-such-model|none\."):
            user_dir.load_model(name)
