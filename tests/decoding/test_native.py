"""The search in C++: which models it takes, and that what it finds for a sentence depends on nothing else.

That it finds what fairseq does is tested in test_generator.py.
"""

import dataclasses
import itertools
import threading

import numpy as np
import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from helpers import build, dictionary, peaked

from user_dir.attention.normalizers import NORMALIZERS
from user_dir.attention.normalizers.alpha_entmax import AlphaEntmax
from user_dir.decoding.from_model import not_native, weights_of
from user_dir.decoding.kernels import kernels
from user_dir.decoding.native import Engine
from user_dir.decoding.settings import Settings
from user_dir.decoding.weights import Linear, sinusoids

PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"


def settings(**others) -> Settings:
    words = dictionary()
    given = {"beam": 3, "symbols": len(words), "longest": 12, "shortest": 1, "begin": words.eos()}
    given |= {"end": words.eos(), "padding": words.pad(), "unknown": words.unk(), "penalty": 0.0}
    given |= {"normalised": True, "length_penalty": 1.0, "suppressed": ()}
    return Settings(**given | others)


def sentences(count: int, seed: int = 1) -> list[torch.Tensor]:
    """Of 1 to 9 tokens, the last the end."""
    torch.manual_seed(seed)
    words = dictionary()
    lengths = torch.randint(9, (count,)).tolist()
    each = [torch.randint(words.nspecial, len(words), (length,)) for length in lengths]
    return [torch.cat([tokens, torch.tensor([words.eos()])]) for tokens in each]


def search(engine: Engine, given: list[torch.Tensor], **options) -> list[list[dict]]:
    lengths = np.array([len(each) for each in given])
    return engine.search(torch.cat(given).numpy(), lengths, settings(**options))


def assert_equal(found: list[list[dict]], expected: list[list[dict]]) -> None:
    assert [len(each) for each in found] == [len(each) for each in expected]
    for one, other in zip(*(itertools.chain(*each) for each in (found, expected))):
        assert all(
            np.array_equal(one[name], other[name]) for name in ("tokens", "score", "positional_scores")
        )


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("int8", (False, True))
@pytest.mark.parametrize(
    "flags",
    (
        f"{PRE_NORM} --decoder-attention-heads 3 --decoder-embed-dim 24",
        "",
        "--encoder-self-attention-normalizer rela --output-alpha 1.5",
    ),
)
def test_a_translation_depends_neither_on_its_batch_nor_on_threads(dtype, int8, flags):
    """To the bit; with more sentences than are decoded at a time: some begin where others have ended."""
    built = peaked(flags).to(dtype)
    alphas = np.array([1.3, 1.5, 2.0, 1.0][: built.decoder.layers[0].self_attn.num_heads])
    weights = weights_of(built)
    for layer in (*weights.encoder.layers, *weights.decoder.layers):
        layer.attention.alpha = alphas[: len(layer.attention.alpha)]
    engine, given = Engine(weights, int8), sentences(90)
    alone = [search(engine, [each])[0] for each in given]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert_equal(search(engine, given), alone)
            assert_equal(search(engine, given[:4]), alone[:4])
    finally:
        torch.set_num_threads(before)


def test_heads_with_alpha_above_2_do_not_change_others():
    weights = weights_of(peaked(PRE_NORM).float())
    weights.decoder.layers[0].attention.alpha = np.array([1.5, 3.0, 1.0, 2.0])
    engine, given = Engine(weights), sentences(7)
    assert_equal(search(engine, given, beam=1), [search(engine, [each], beam=1)[0] for each in given])


def test_integers_are_near():
    built = peaked(PRE_NORM).float()
    exact, rounded = (search(Engine(weights_of(built), int8), sentences(5)) for int8 in (False, True))
    for one, other in zip(exact, rounded):
        assert one[0]["score"] != other[0]["score"]
        np.testing.assert_allclose(one[0]["score"], other[0]["score"], rtol=0.1, atol=0.1)


NATIVE = (
    "",
    "--length-scaling",
    PRE_NORM,
    "--activation-fn gelu",
    "--no-cross-attention",
    "--decoder-embed-dim 8 --decoder-output-dim 12",
    "--output-alpha 1.5",
    "--decoder-context-attention-normalizer rela",
)
OTHERS = (
    "--latent-alignment --latent-alignment-alpha 1.6",
    "--activation-fn tanh",
    "--encoder-self-attention-normalizer fixed",
)


@pytest.mark.parametrize("flags", (*NATIVE, *OTHERS))
def test_what_is_not_known_in_cpp_stays_in_python(flags):
    assert (not_native(build(flags).eval()) is None) == (flags in NATIVE)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_all_normalizers_that_are_entmax_or_rela_are_known(name):
    built = build(f"--attention-normalizer {name}").eval()
    known = NORMALIZERS[name].forward is AlphaEntmax.forward or name == "rela"
    assert (not_native(built) is None) == known


def test_sentences_longer_than_the_first_table_of_sinusoids():
    """Of 1024 positions; the rows of a new one are those of the first."""
    built = peaked(PRE_NORM)
    table = built.decoder.embed_positions.weights
    first = built.padding_idx if hasattr(built, "padding_idx") else built.decoder.padding_idx
    expected = table[first + 1 :].float()
    weights = weights_of(built)
    assert np.array_equal(weights.decoder.positions(len(expected)), expected)
    engine = Engine(weights)
    short = search(engine, sentences(1))
    (found,) = search(engine, sentences(1), longest=1200, shortest=1100, beam=1)
    assert len(found[0]["tokens"]) > 1100
    assert_equal(search(engine, sentences(1)), short)


@pytest.mark.parametrize("width", (16, 33, 512))
def test_sinusoids_without_torch_are_those_of_fairseq(width):
    expected = SinusoidalPositionalEmbedding.get_embedding(2002, width, 1)[2:]
    np.testing.assert_allclose(sinusoids(2000, width, 1), expected, rtol=0, atol=2e-4)
    np.testing.assert_allclose(sinusoids(40, width, 1), expected[:40], rtol=0, atol=5e-6)


def test_what_is_out_of_range_is_an_error():
    flags = f"{PRE_NORM} --encoder-learned-pos --max-source-positions 8"
    engine = Engine(weights_of(peaked(flags)))
    for token in (-1, len(dictionary())):
        with pytest.raises(ValueError, match=str(len(dictionary()))):
            search(engine, [torch.tensor([5, token, 2])])
    assert search(engine, [torch.full((8,), 5)])
    with pytest.raises(ValueError, match="8 positions"):
        search(engine, [torch.full((9,), 5)])


def test_weights_are_read_from_both_sides():
    """Every weight of a model counts."""
    flags = "--layernorm-embedding --decoder-embed-dim 8 --decoder-output-dim 12 --length-scaling "
    flags += "--decoder-self-attention-normalizer rela"
    built = peaked(f"{PRE_NORM} {flags}")
    given = sentences(3)
    expected = search(Engine(weights_of(built)), given)
    for name, parameter in built.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.mul_(1.3).add_(0.2 * torch.randn_like(parameter))
        found = search(Engine(weights_of(built)), given)
        same = all(one[0]["score"] == other[0]["score"] for one, other in zip(found, expected))
        # the bias of keys adds the same to all scores of a query
        assert not same or name.endswith("k_proj.bias"), name
        with torch.no_grad():
            parameter.copy_(kept)


def test_weights_may_be_taken_away():
    built = peaked(PRE_NORM)
    weights = weights_of(built)
    found = search(Engine(weights, consume=True), sentences(3))
    assert_equal(found, search(Engine(weights_of(built)), sentences(3)))
    assert not weights.output.weight.size and not weights.encoder.layers[1].attention.key.weight.size


def test_a_linear_layer_without_bias():
    weights = weights_of(peaked(PRE_NORM))
    layer = weights.decoder.layers[1]
    without = dataclasses.replace(layer, fc1=Linear(layer.fc1.weight))
    zero = dataclasses.replace(layer, fc1=Linear(layer.fc1.weight, np.zeros_like(layer.fc1.bias)))
    found = []
    for each in (without, zero):
        weights.decoder.layers[1] = each
        found.append(search(Engine(weights), sentences(3)))
    assert_equal(*found)


def test_threads_are_as_many_as_torch_has(monkeypatch):
    """Also in a thread of Python that has not called torch yet."""
    wanted = []
    monkeypatch.setitem(kernels, ("use_threads", "float32"), wanted.append)
    engine = Engine(weights_of(peaked(PRE_NORM).float()))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        thread = threading.Thread(target=lambda: search(engine, sentences(2)))
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(before)
    assert wanted == [3]
