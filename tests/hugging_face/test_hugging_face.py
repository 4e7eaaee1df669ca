"""Models for transformers: what is refused, what is noticed, and the α-entmax of their code."""

import importlib

import pytest
import torch
from fairseq import models
from helpers import SMALL, build, entmax_oracle, parse, translation_task
from tiny_splits import described

from user_dir.entmax import entmax
from user_dir.errors import UserError
from user_dir.hugging_face import hugging_face
from user_dir.hugging_face.model_folder import new_folder

SHARED = "--share-all-embeddings "


def test_its_entmax_and_gradients_are_ours():
    code = importlib.import_module("user_dir.hugging_face.modeling_adaptively_sparse")
    alpha = torch.tensor([1.0, 1.001, 1.3, 1.5, 2.0]).view(5, 1, 1)
    for scale, keys in ((1.0, 1), (0.1, 40), (4.0, 30)):
        scores = (torch.randn(2, 5, 3, keys) * scale).requires_grad_()
        scores.data[..., ::3] = torch.finfo(torch.float32).min if keys > 1 else 0.0
        weights, ours = code.entmax(scores, alpha), entmax(scores, alpha)
        torch.testing.assert_close(weights, entmax_oracle(scores, alpha).float(), rtol=0, atol=1e-5)
        grads = [torch.autograd.grad((x**2).sum(), scores)[0] for x in (weights, ours)]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("flags", "reason"),
    (
        ("", "other log-prob"),  # embeddings that are not shared
        (SHARED + "--encoder-learned-pos", r"other .*encoder\.embed_positions"),
        (SHARED + "--activation-fn gelu", "other log-prob"),
        (SHARED + "--attention-normalizer rela", "not α-entmax"),
        (SHARED + "--latent-alignment", r"other .*encoder_attn\.alpha"),
        (SHARED + "--fixed-alpha 2.5", "α above 2 "),
    ),
)
def test_models_that_are_refused(flags, reason):
    with pytest.raises(UserError, match=reason):
        hugging_face.converted(build(flags))


def test_corpora_that_are_refused(tmp_path):
    assert hugging_face.unsupported_corpus(described(tmp_path / "plain")) is None
    lower = described(tmp_path / "lower", "normalise: {every: [lower_case]}")
    assert "lower_case" in hugging_face.unsupported_corpus(lower)
    identity = described(tmp_path / "identity", "normalization: identity")
    assert "identity" in hugging_face.unsupported_corpus(identity)


@pytest.mark.parametrize("normalizer", ("entmax", "softmax"))
def test_an_export_computes_the_same_and_other_parameters_are_noticed(normalizer):
    args = parse(f"{SMALL} {SHARED} --attention-normalizer {normalizer}")
    args.encoder_normalize_before = args.decoder_normalize_before = True
    model = models.build_model(args, translation_task())
    exported = hugging_face.converted(model)
    assert type(exported).__name__.startswith("M2M100") == (normalizer == "softmax")
    assert hugging_face.largest_difference(model, exported) < 1e-5
    if normalizer == "entmax":
        with pytest.raises(ValueError, match="sdpa"):
            exported.set_attn_implementation("sdpa")
    model.encoder.layers[0].fc1.bias.data += 0.1
    assert hugging_face.largest_difference(model, exported) > hugging_face.MAX_ERROR
    model.encoder.layers[1].normalize_before = False
    with pytest.raises(UserError, match="other"):
        hugging_face.converted(model)


def test_nothing_is_left_where_something_fails(tmp_path):
    with pytest.raises(OSError, match="no space"), new_folder(tmp_path / "new") as folder:
        (folder / "half").touch()
        raise OSError(28, "no space")
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "new") as folder:
        (folder / "whole").touch()
    with pytest.raises(UserError, match="exists already"), new_folder(tmp_path / "new"):
        pass
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["whole"]
