"""Translating without fairseq: the results are those with it, and what is not known is left to it."""

from __future__ import annotations

import itertools
import sys
from itertools import chain

import pytest
import torch
from fairseq.data import Dictionary
from helpers import NUM_WORDS
from tiny_release import SENTENCES, contents, tiny_checkpoint, tiny_corpus, tiny_state
from user_dir.eight_bits import packed, rounded
from user_dir.safetensors_checkpoints import write_safetensors

from user_dir.checkpoints import load_checkpoint
from user_dir.commands import translate
from user_dir.corpora.segment import vocabulary
from user_dir.errors import UserError
from user_dir.releases.archive import CHECKPOINT, write_archive
from user_dir.releases.building import released_state
from user_dir.releases.opened import opened
from user_dir.translation import native_search as module
from user_dir.translation.limits import Limit
from user_dir.translation.native_search import NativeSearch, native_search
from user_dir.translation.search import Search
from user_dir.translation.translator import open_translator

PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"
KINDS = {
    "the paper's": PRE_NORM,
    "of an older version": PRE_NORM,
    "post-norm softmax": "--attention-normalizer softmax --activation-fn gelu",
    "learned positions": f"{PRE_NORM} --encoder-learned-pos --decoder-learned-pos --fixed-alpha 1.3",
    "packed": PRE_NORM,
    "sparse": f"{PRE_NORM} --length-scaling --decoder-self-attention-normalizer rela --output-alpha 1.5",
}
TEXTS = [*SENTENCES[:4], "", " \t ", "Wo?", "Der Hund " * 12, "🙂 unbekannt </s> <unk>", SENTENCES[1]]
OPTIONS = (
    {},
    {"beam": 1},
    {"beam": 4, "nbest": 4, "length_penalty": 0.3},
    {"max_len_b": 3},
    {"max_len_a": 0.5, "max_len_b": 1, "max_tokens": 40, "length_penalty": -0.5},
    {"int8": True, "nbest": 2},
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    found = tiny_corpus(tmp_path_factory.mktemp("corpus"))
    words = Dictionary()
    for piece in vocabulary(found.pieces)[:NUM_WORDS]:
        words.add_symbol(piece)
    for language in found.languages:
        words.save(str(found.bin / f"dict.{language}.txt"))
    return found


def varied_state(flags: str) -> dict:
    """Of a model whose translations differ, as far from uniform as those of a trained one."""
    torch.manual_seed(5)
    state = tiny_state(flags=flags)
    for name, value in state["model"].items():
        if "version" not in name:
            value.add_(torch.randn_like(value) / 4)
    return state


@pytest.fixture(scope="module")
def archives(corpus, tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("archives"), {}
    for kind, flags in KINDS.items():
        state = varied_state(flags)
        state["model"] = rounded(state["model"]) if kind == "packed" else state["model"]
        files = contents(corpus, tiny_checkpoint(folder / "model.pt", state))
        if kind != "of an older version":
            released = released_state(load_checkpoint(folder / "model.pt"), Limit())
            write_safetensors(packed(released) if kind == "packed" else released, folder / CHECKPOINT)
            files[CHECKPOINT] = (folder / CHECKPOINT).read_bytes()
            del files["model.pt"]
        made[kind] = folder / f"{len(made)}.tar"
        write_archive("mine", files, made[kind])
    return made


def both(paths, corpus=None, **options) -> list:
    """The translator without fairseq and the one with it."""
    with opened(paths) as (checkpoints, found):
        ways = [{}, {"by_fairseq": True}]
        return [open_translator(checkpoints, corpus or found, cpu=True, **options, **way) for way in ways]


def cases() -> list:
    """By day every option for two kinds of models, and one for the others."""
    often = {*itertools.product(("packed", "sparse"), range(len(OPTIONS))), *((kind, 2) for kind in KINDS)}
    return [
        pytest.param(kind, options, marks=[] if (kind, i) in often else pytest.mark.nightly)
        for kind, (i, options) in itertools.product(KINDS, enumerate(OPTIONS))
    ]


@pytest.mark.parametrize(("kind", "options"), cases())
def test_translations_are_those_of_fairseq(archives, kind, options, monkeypatch):
    """Of its own search, except with 8-bit integers."""
    native, fairseq = both([archives[kind]], **options)
    assert type(native.search) is NativeSearch and type(fairseq.search) is not NativeSearch
    assert (native.limit, native.search.max_positions) == (fairseq.limit, fairseq.search.max_positions)
    found = native(TEXTS)
    if not options.get("int8"):
        monkeypatch.setenv("ENTMAX_BACKEND", "reference")
    expected = fairseq(TEXTS)
    assert [len(each) for each in found] == [len(each) for each in expected]
    assert found[4] == found[5] == [] and (options or len({each[0].text for each in found if each}) > 1)
    for one, other in zip(chain(*found), chain(*expected)):
        assert (one.text, one.tokens.tolist(), one.unfinished) == (
            *(other.text, other.tokens.tolist(), other.unfinished),
        )
        assert one.score == pytest.approx(other.score, rel=1e-4, abs=1e-5)
    if options.get("max_len_b") == 3:
        assert any(each[0].unfinished for each in found if each)


@pytest.mark.parametrize("options", [{"beam": 0}, {"beam": 3, "nbest": 4}, {"new_piece_penalty": 1.0}])
def test_wrong_options_are_refused(archives, options):
    with pytest.raises(UserError), opened([archives["packed"]]) as (checkpoints, corpus):
        open_translator(checkpoints, corpus, cpu=True, **options)


@pytest.mark.parametrize(
    "options",
    [{"length_penalty": each} for each in (500.0, -500.0, float("nan"), "1")]
    + [{"max_len_a": float("inf")}, {"beam": 2.5}, {"beam": "5"}],
    ids=str,
)
def test_numbers_are_refused_as_by_fairseq(corpus, tmp_path, options):
    path, messages = tiny_checkpoint(tmp_path / "a.pt", varied_state("")), []
    for by_fairseq in (False, True):
        with pytest.raises(UserError) as raised:
            open_translator([path], corpus, cpu=True, by_fairseq=by_fairseq, **options)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_a_sentence_longer_than_the_model_allows_is_refused(corpus, tmp_path):
    state = varied_state("--max-source-positions 9")
    messages = []
    for translator in both([tiny_checkpoint(tmp_path / "a.pt", state)], corpus):
        assert translator(["Wo?"])[0]
        with pytest.raises(UserError) as raised:
            translator(["Wo?", "Der Hund schläft. " * 9], 5, "talk.de")
        messages.append(str(raised.value))
    assert messages[0] == messages[1] and "talk.de, line 6" in messages[0]


def test_the_limit_that_is_told_is_that_of_the_model(corpus, tmp_path, capsys):
    path = tiny_checkpoint(tmp_path / "a.pt", varied_state("--max-target-positions 5"))
    for options, told, remedy in (({}, 4, "the model"), ({"max_len_b": 3}, 3, "--max-len-b")):
        for translator in both([path], corpus, **options):
            assert all(len(best.tokens) == told + 1 for (best,) in translator(SENTENCES[:2]))
            translate.translate(
                translate.parse_args(["--path", str(path), *SENTENCES[:2]]), translator, sys.stdout
            )
            said = capsys.readouterr().err
            assert f" {told} pieces" in said and remedy in said


def test_parameters_that_are_not_finite_are_refused(corpus, tmp_path):
    state = varied_state("")
    state["model"]["decoder.layers.0.fc1.bias"][0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        open_translator([tiny_checkpoint(tmp_path / "a.pt", state)], corpus, cpu=True)


@pytest.mark.parametrize("rows", (-3, 5))
def test_another_target_vocabulary_is_refused(corpus, tmp_path, rows):
    """By both ways, of a checkpoint without fingerprints, whose sides have embeddings of their own."""
    state = varied_state("")
    embeddings = state["model"]["decoder.embed_tokens.weight"]
    embeddings = torch.cat([embeddings, embeddings[:rows]]) if rows > 0 else embeddings[:rows].clone()
    for name in ("embed_tokens", "output_projection"):
        state["model"][f"decoder.{name}.weight"] = embeddings
    settings = state["cfg"]["model"]
    settings.share_all_embeddings, settings.share_decoder_input_output_embed = False, True
    path = tiny_checkpoint(tmp_path / "a.pt", state)
    for by_fairseq in (False, True):
        with pytest.raises(UserError, match=f"with {len(embeddings)} symbols.* with {NUM_WORDS + 4} "):
            open_translator([path], corpus, cpu=True, by_fairseq=by_fairseq)


OTHERS = ("--latent-alignment --latent-alignment-alpha 1.6", "--encoder-self-attention-normalizer fixed")


@pytest.mark.parametrize("flags", OTHERS)
def test_what_is_not_known_is_left_to_fairseq(corpus, tmp_path, flags):
    path = tiny_checkpoint(tmp_path / "a.pt", varied_state(flags))
    native, fairseq = both([path], corpus)
    assert type(native.search) is type(fairseq.search) is not NativeSearch
    assert [each[0].text for each in native(SENTENCES[:2])] == [
        each[0].text for each in fairseq(SENTENCES[:2])
    ]


def test_ensembles_are_left_to_fairseq(corpus, tmp_path):
    path = tiny_checkpoint(tmp_path / "a.pt", varied_state(""))
    assert type(both([path, path], corpus)[0].search) is not NativeSearch
    assert type(both([path], corpus)[0].search) is NativeSearch
    assert type(both([path], corpus, beam=13, max_len_b=9)[0].search) is not NativeSearch


def test_where_the_kernel_is_not_to_be_used_or_there_is_a_gpu(monkeypatch):
    def found(**how):
        return native_search(varied_state(""), Search(), **{"cpu": True, "int8": False, **how})

    assert found() is not None
    monkeypatch.setattr(module, "_may_have_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert found(cpu=False) is None and found() is not None and found(cpu=False, int8=True) is not None
    monkeypatch.setenv("ENTMAX_BACKEND", "reference")
    assert found() is None
