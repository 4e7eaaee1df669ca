"""Attribution: gradient × input, value zeroing and rollout beside slow or independent computations."""

from __future__ import annotations

import copy
import json
from contextlib import contextmanager

import inseq_reference
import numpy as np
import post_editing
import pytest
import torch
import torch.nn.functional as F
from examples import sentence
from helpers import batch, build, build_language_model

from user_dir.analysis import attribution
from user_dir.analysis.attribution import gradient_input, rollout, value_zeroing
from user_dir.analysis.capture import captured_attention, run
from user_dir.attention_types import ATTENTION_TYPES
from user_dir.modules import causal_mask

SHARED = "--share-all-embeddings"
POST_NORM = "adaptively_sparse_transformer_wmt_en_de"


def one_sentence() -> dict:
    """The first sentence of the tests' batch, which has no padding: 7 source and 6 target tokens."""
    tokens = {name: value[:1] for name, value in batch().items()}
    inputs = {name: tokens[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}
    return {"net_input": inputs, "target": tokens["target"]}


@contextmanager
def scaled_embedding(model, side: str, place: int, factor: float):
    """While open, the embedding of one token is multiplied, in the encoder or the decoder alone."""
    shared = model.encoder.embed_tokens is model.decoder.embed_tokens
    calls = iter([True, False] if side == "encoder" or not shared else [False, True])

    def scale(module, args, output):
        factors = torch.ones(output.size(1), 1, dtype=output.dtype)
        if next(calls):
            factors[place] = factor
        return output * factors

    hook = getattr(model, side).embed_tokens.register_forward_hook(scale)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("flags", ["", SHARED, "--adaptive-softmax-cutoff 5,9", "--no-cross-attention"])
def test_gradient_input_is_the_derivative_by_the_size_of_an_embedding(flags, monkeypatch):
    """e · ∂p/∂e is dp/dk where the embedding is k·e: central differences, a token at a time."""
    model, sample = build(flags).eval(), one_sentence()
    monkeypatch.setattr(attribution, "MAX_TOKENS", 21)  # two target tokens at once
    found = gradient_input(model, sample)
    target, step = sample["target"][0], 1e-5

    def probabilities() -> torch.Tensor:
        with torch.no_grad():
            output, adaptive = run(model, sample)[0], model.decoder.adaptive_softmax
            log_p = adaptive.get_log_prob(output, None) if adaptive else output.log_softmax(-1)
            return log_p[0, range(6), target].exp()

    shared = model.encoder.embed_tokens is model.decoder.embed_tokens
    assert shared == (SHARED in flags)
    for kind, side, keys in (("decoder_context", "encoder", 7), ("decoder_self", "decoder", 6)):
        assert found[kind].shape == (6, keys)
        for key in range(keys):
            ends = []
            for factor in (1 + step, 1 - step):
                with scaled_embedding(model, side, key, factor):
                    ends.append(probabilities())
            assert torch.allclose(found[kind][:, key], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-8)
    assert found["decoder_self"].triu(1).eq(0).all()
    assert found["decoder_context"].eq(0).all() == ("--no-cross-attention" in flags)


def layer_output(layer, x, encoded, kind, weights, skip) -> torch.Tensor:
    """The output of a layer (T, C) from its input x, with one attention in loops.

    That of type ``kind``, with given ``weights`` (H, T, S), leaves out the value vector of token ``skip``.
    """

    def block(x, norm, compute):
        return x + compute(norm(x)) if layer.normalize_before else norm(x + compute(x))

    def without(attention, values):
        heads = []
        for head in range(attention.num_heads):
            rows = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
            output = torch.zeros(len(x), attention.head_dim, dtype=x.dtype)
            for key, value in enumerate(values):
                if key != skip:
                    value = attention.v_proj.weight[rows] @ value + attention.v_proj.bias[rows]
                    output += weights[head][:, key, None] * value
            heads.append(output)
        return torch.cat(heads, 1) @ attention.out_proj.weight.T + attention.out_proj.bias

    def own(y):
        if kind != "decoder_context":
            return without(layer.self_attn, y)
        y = y[:, None]
        return layer.self_attn(y, y, y, attn_mask=causal_mask(y), need_weights=False)[0][:, 0]

    def context(y):
        if kind == "decoder_context":
            return without(layer.encoder_attn, encoded)
        keys = encoded[:, None]
        return layer.encoder_attn(y[:, None], keys, keys, need_weights=False)[0][:, 0]

    x = block(x, layer.self_attn_layer_norm, own)
    if kind != "encoder_self":
        x = block(x, layer.encoder_attn_layer_norm, context)
    return block(x, layer.final_layer_norm, lambda y: layer.fc2(F.relu(layer.fc1(y))))


@pytest.mark.parametrize("arch", ["adaptively_sparse_transformer", POST_NORM])
@torch.no_grad()
def test_value_zeroing_is_the_change_of_a_layer_without_a_value(arch, monkeypatch):
    model, sample = build(arch=arch, seed=3).eval(), one_sentence()
    monkeypatch.setattr(attribution, "MAX_TOKENS", 28)  # three keys at once
    assert model.encoder.layers[0].normalize_before == (arch != POST_NORM)
    found = value_zeroing(model, sample)
    inputs: dict[tuple, torch.Tensor] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda module, args, at=(side, number): inputs.update({at: args[0]}))
        for side in ("encoder", "decoder")
        for number, layer in enumerate(getattr(model, side).layers)
    ]
    with captured_attention(model) as weights:
        run(model, sample)
    for hook in hooks:
        hook.remove()
    encoded = model.encoder(**{k: sample["net_input"][k] for k in ("src_tokens", "src_lengths")})
    encoded = encoded["encoder_out"][0][:, 0]
    for kind in ATTENTION_TYPES:
        side = "encoder" if kind == "encoder_self" else "decoder"
        for number, layer in enumerate(getattr(model, side).layers):
            x = inputs[side, number][:, 0]
            heads = weights[kind][number][0].double()
            outputs = [
                layer_output(layer, x, encoded, kind, heads, key) for key in (None, *range(heads.size(-1)))
            ]
            distances = [1 - F.cosine_similarity(outputs[0], each, dim=1) for each in outputs[1:]]
            expected = torch.stack(distances, dim=1)
            expected /= expected.sum(1, keepdim=True)
            assert torch.allclose(found[kind][number], expected, rtol=1e-5, atol=1e-8), (kind, number)


def test_shared_projections_do_not_share_value_zeroing():
    """A post-editor whose attentions share projections, beside one with equal projections of its own."""
    model = post_editing.build("--share-self-attention --tie-context-attention").eval()
    tokens = {name: value[2:] for name, value in post_editing.batch().items()}
    inputs = {name: tokens[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}
    sample = {"net_input": inputs, "target": tokens["target"]}
    found = value_zeroing(model, sample)
    for attention in (each for layers in model.attentions().values() for each in layers):
        attention.v_proj = copy.deepcopy(attention.v_proj)
    for kind, expected in value_zeroing(model, sample).items():
        assert torch.allclose(found[kind], expected, rtol=1e-9, atol=1e-12), kind


def test_a_token_without_attention_has_a_value_zeroing_of_exactly_0():
    model, sample = build().eval(), one_sentence()
    for attention in (each for layers in model.attentions().values() for each in layers):
        attention.k_proj.weight.data *= 30  # far apart, so that α-entmax leaves tokens out
    with torch.no_grad(), captured_attention(model) as weights:
        run(model, sample)
    found, zeros = value_zeroing(model, sample), 0
    for kind, layers in weights.items():
        for number, each in enumerate(layers):
            unseen = each[0].eq(0).all(0)
            zeros += int(unseen.sum())
            assert found[kind][number][unseen].eq(0).all()
    assert zeros > 15 * 2, "all tokens but the future ones are attended to"


@pytest.mark.parametrize("contexts", [3, 2])
def test_rollout_is_a_product_of_matrices_over_all_tokens(contexts):
    """Over the S + T states of both sides, each attention is a square matrix, 0.5·A + 0.5·I in its rows.

    Two of three layers have context attention if the top one is a latent alignment.
    """
    maps = sentence(6, 5, 3, 2, seed=4)
    maps.weights["decoder_context"] = maps.weights["decoder_context"][:contexts]
    found = rollout(maps.weights)
    source, read = len(maps.source), len(maps.target_input)
    size, encoder, decoder = source + read, slice(0, source), slice(source, None)
    product, mean = (
        np.eye(size),
        {name: each.mean(1, dtype=np.float64) for name, each in maps.weights.items()},
    )

    def layer(rows, columns, attention):
        matrix = np.eye(size)
        matrix[rows] /= 2
        matrix[rows, columns] += attention / 2
        return matrix

    for number in range(3):
        product = layer(encoder, encoder, mean["encoder_self"][number]) @ product
        assert np.allclose(found["encoder_self"][number], product[encoder, encoder], rtol=1e-6)
    for number in range(3):
        product = layer(decoder, decoder, mean["decoder_self"][number]) @ product
        if number < contexts:
            product = layer(decoder, encoder, mean["decoder_context"][number]) @ product
            assert np.allclose(found["decoder_context"][number], product[decoder, encoder], rtol=1e-6)
        assert np.allclose(found["decoder_self"][number], product[decoder, decoder], rtol=1e-6)
    assert len(found["decoder_context"]) == contexts
    both = found["decoder_context"].sum(-1) + found["decoder_self"][:contexts].sum(-1)
    assert np.allclose(both, 1)


def test_a_language_model_has_measures_of_what_it_read():
    model = build_language_model()
    sample = one_sentence()
    assert gradient_input(model, sample)["decoder_self"].shape == (6, 6)
    zeroed = value_zeroing(model, sample)
    assert set(zeroed) == set(gradient_input(model, sample)) == {"decoder_self"}
    assert torch.allclose(zeroed["decoder_self"].sum(-1), torch.ones(2, 6, dtype=torch.float64))
    weights = {"decoder_self": sentence(6, 6).weights["decoder_self"]}
    assert np.allclose(rollout(weights)["decoder_self"].sum(-1), 1)


def test_a_word_of_probability_0_has_no_gradient():
    """Of a model with sparse outputs; a softmax never gives exactly 0."""
    model, sample = build("--output-alpha 1.5").eval(), one_sentence()
    model.decoder.output_projection.weight.data *= 50
    with torch.no_grad():
        p = model.get_normalized_probs(run(model, sample), log_probs=False)[0, range(6), sample["target"][0]]
    assert p.eq(0).any()
    for each in gradient_input(model, sample).values():
        assert each.isfinite().all() and each[p.eq(0)].eq(0).all()


def test_inseq_computes_the_same():
    """Of Hugging Face's Marian with the same weights, by inseq 0.7.1 in float32: inseq_reference.py."""
    model = build(f"{SHARED} --decoder-attention-heads 4 --attention-normalizer softmax", POST_NORM).eval()
    state = model.state_dict()
    for name, value in state.items():
        if value.dim() and "output_projection" not in name:
            name = name.replace("decoder.embed_tokens", "encoder.embed_tokens")
            value.copy_(inseq_reference.weight(name, tuple(value.shape)))
    source, target = (torch.tensor([tokens]) for tokens in (inseq_reference.SOURCE, inseq_reference.TARGET))
    previous = target.roll(1, dims=1)
    inputs = {"src_tokens": source, "src_lengths": torch.tensor([7]), "prev_output_tokens": previous}
    sample = {"net_input": inputs, "target": target}
    expected = json.loads(inseq_reference.FILE.read_text(encoding="utf-8"))
    for method, found, tolerance in (
        ("input_x_gradient", gradient_input(model, sample), 1e-7),
        ("value_zeroing", value_zeroing(model, sample), 3e-5),
    ):
        for kind, each in found.items():
            theirs = torch.tensor(expected[f"{method}/{kind}"], dtype=torch.float64)
            assert torch.allclose(each.flatten(0, -2), theirs, rtol=1e-5, atol=tolerance), (method, kind)
    assert set(expected) == {f"input_x_gradient/{kind}" for kind in ATTENTION_TYPES[1:]} | {
        f"value_zeroing/{kind}" for kind in ATTENTION_TYPES
    }
