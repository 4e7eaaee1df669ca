"""New sentences through a model as a folder: translator, loaded model, command."""

from __future__ import annotations

import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny_splits import SENTENCES, model_folder

import user_dir
from user_dir.analysis.maps import SIDES
from user_dir.commands.translate import arriving_lines, main
from user_dir.errors import UserError
from user_dir.models import AdaptivelySparseTransformerModel
from user_dir.translation import loading
from user_dir.translation.loading import find_model
from user_dir.translation.translator import Translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(folder):
    return user_dir.load_model(folder, cpu=True, beam=2)


def translator(folder, *others, **options) -> Translator:
    checkpoint, corpus = find_model(folder)
    return Translator([checkpoint, *others], corpus, cpu=True, beam=2, **options)


def test_a_sentence_or_a_list_is_translated(model):
    alone = [model.translate(sentence) for sentence in SENTENCES]
    assert model.translate([*SENTENCES, ""]) == [*alone, ""]
    assert len(set(alone)) == len(alone)


def test_nbest_are_ordered_and_cut_ones_are_marked(folder):
    translations = translator(folder, nbest=2)(SENTENCES)
    assert all(best.score >= second.score and not second.unfinished for best, second in translations)
    short = translator(folder, max_len_b=2)
    assert (short.limit.b, translator(folder).limit.b) == (2, 230), "asked for, and that of the folder"
    for (best,) in short(SENTENCES):
        assert best.unfinished == (len(best.tokens) == 3)
    for options in ({"nbest": 3}, {"nbest": 0}):
        with pytest.raises(UserError, match="--nbest"):
            translator(folder, **options)


def test_an_ensemble(folder, tmp_path):
    expected = translator(folder, max_len_b=5)(SENTENCES)
    same = translator(folder, folder / "model.pt", max_len_b=5)(SENTENCES)
    assert [best.text for (best,) in same] == [best.text for (best,) in expected]
    second = model_folder(tmp_path / "other", seed=2) / "model.pt"
    other = translator(folder, second, max_len_b=5)(SENTENCES)
    assert [best.score for (best,) in other] != [best.score for (best,) in expected]
    with pytest.raises(UserError, match="direction"):
        translator(folder, model_folder(tmp_path / "back", direction=("en", "de")) / "model.pt")


def test_eight_bit_integers_change_the_scores(folder):
    exact, rounded = (translator(folder, int8=int8)(SENTENCES[:1])[0][0].score for int8 in (False, True))
    assert rounded != exact


def test_a_model_is_found_by_its_name(folder, model, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "MODELS", tmp_path)
    shutil.copytree(folder, tmp_path / "de-en")
    assert user_dir.load_model("de-en", cpu=True, beam=2).translate(SENTENCES) == model.translate(SENTENCES)
    for name in ("no-such-model", tmp_path / "none.pt", tmp_path):
        with pytest.raises(UserError, match="there is no model"):
            user_dir.load_model(name)


def test_it_can_be_handed_to_other_processes(model):
    assert pickle.loads(pickle.dumps(model)).translate(SENTENCES) == model.translate(SENTENCES)


def test_threads_take_turns(model):
    """The attention that one captures is not that of another."""
    alone = [model.attention(text).weights["decoder_context"] for text in SENTENCES]
    with ThreadPoolExecutor(4) as pool:
        pooled = list(pool.map(lambda text: model.attention(text).weights["decoder_context"], SENTENCES * 8))
    assert all(np.array_equal(*both) for both in zip(alone * 8, pooled))


def test_fairseq_loads_the_folder(folder, model):
    loaded = AdaptivelySparseTransformerModel.from_pretrained(
        str(folder), "model.pt", bpe="sentencepiece", sentencepiece_model=str(folder / "spm.model")
    )
    assert loaded.translate(SENTENCES, beam=2, max_len_b=230) == model.translate(SENTENCES)


def test_attention_of_a_translation(model):
    for translation in (None, "The dog sleeps."):
        maps = model.attention(SENTENCES[1], translation)
        assert maps.text == SENTENCES[1] and maps.target[-1] == "</s>"
        assert maps.target_input == ["</s>", *maps.target[:-1]]
        for kind, weights in maps.weights.items():
            assert weights.shape[2:] == tuple(len(getattr(maps, side)) for side in SIDES[kind])
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    (best,) = model.translator([SENTENCES[1]])[0]
    words = model.translator.task.target_dictionary
    assert model.attention(SENTENCES[1]).target == [words[token] for token in best.tokens]
    for sentence, translation in ((" ", None), (SENTENCES[0], "a" * 5000)):
        with pytest.raises(ValueError):
            model.attention(sentence, translation)


def test_what_was_translated_is_written_before_a_bad_line(folder, model, tmp_path, capsys):
    source, output = tmp_path / "in", tmp_path / "out"
    long = "Hund " * 2000
    lines = [SENTENCES[0].encode(), b"", b"\xff", long.encode(), SENTENCES[1].encode()]
    source.write_bytes(b"\r\n".join(lines))
    command = [
        "--model",
        str(folder),
        "--cpu",
        "--beam",
        "2",
        "--input",
        str(source),
        "--output",
        str(output),
    ]
    with pytest.raises(UserError, match="line 3: byte 0xff"):
        main(command)
    first, second = model.translate(SENTENCES[:2])
    assert output.read_text() == f"{first}\n\n"
    main([*command, "--skip-bad-lines"])
    assert output.read_text() == f"{first}\n\n\n\n{second}\n"
    assert "line 3: byte 0xff" in (told := capsys.readouterr().err) and "line 4 has" in told


def test_lines_of_a_pipe_come_as_they_arrive():
    """The second line is written only after the first was read."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file, os.fdopen(write, "wb", buffering=0) as pipe:
        pipe.write(b"one\ntw")
        lines = arriving_lines(file)
        assert next(lines) == [b"one"]
        pipe.write(b"o\nthree\nfour")
        assert next(lines) == [b"two", b"three"]
        pipe.close()
        assert list(lines) == [[b"four"]]
