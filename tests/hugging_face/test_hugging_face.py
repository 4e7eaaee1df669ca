"""Models for transformers: what is refused, what is noticed, and the α-entmax of their code."""

import importlib
from functools import partial

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import SMALL, build, entmax_oracle, parse, translation_task
from tiny_release import check_noticed

from user_dir.entmax import entmax
from user_dir.releases import hugging_face

SHARED = "--share-all-embeddings "


@pytest.fixture(scope="module")
def code():
    with hugging_face._loadable_transformers():
        return importlib.import_module("user_dir.releases.modeling_adaptively_sparse")


def test_its_entmax_and_gradients_are_ours(code):
    torch.manual_seed(1)
    alpha = torch.tensor([1.0, 1.001, 1.3, 1.5, 2.0]).view(5, 1, 1)
    for scale, keys in ((1.0, 1), (0.1, 40), (4.0, 30)):
        scores = (torch.randn(2, 5, 3, keys) * scale).requires_grad_()
        scores.data[..., ::3] = torch.finfo(torch.float32).min if keys > 1 else 0.0
        weights, ours = code.entmax(scores, alpha), entmax(scores, alpha)
        expected = entmax_oracle(scores, alpha).float()
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)
        grads = [torch.autograd.grad((x**2).sum(), scores)[0] for x in (weights, ours)]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "flags, words",
    (
        ("", "embeddings"),
        (SHARED + "--encoder-learned-pos", "learned positions"),
        (SHARED + "--layernorm-embedding", "normalised"),
        (SHARED + "--activation-fn gelu", "relu"),
        (SHARED + "--attention-normalizer rela", "not α-entmax"),
        (SHARED + "--fixed-alpha 2.5", "above 2"),
    ),
)
def test_models_that_are_refused(flags, words):
    assert hugging_face.unsupported_model(build(SHARED)) is None
    assert words in hugging_face.unsupported_model(build(flags))


@pytest.mark.parametrize("before", (True, False))
@pytest.mark.parametrize("normalizer", ("entmax", "softmax"))
def test_a_model_that_computes_something_else_is_noticed(normalizer, before):
    args = parse(f"{SMALL} {SHARED} --attention-normalizer {normalizer}")
    args.encoder_normalize_before = args.decoder_normalize_before = before
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, translation_task())
    assert model.encoder.layers[0].normalize_before == before
    with hugging_face._loadable_transformers():
        found = hugging_face.converted(model)
    assert type(found).__name__.startswith("M2M100") == (before and normalizer == "softmax")
    check_noticed(model, partial(hugging_face.forced, found))
    model.encoder.layers[0].normalize_before = not before
    assert "post-norm" in hugging_face.unsupported_model(model)
