"""Steps of a model in ONNX: the model's own numbers for all sizes and masks; what is refused and noticed."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import SMALL, build, parse, translation_task
from tiny_release import check_noticed

from user_dir.releases import onnx_folder, onnx_translate

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

OTHERS = "--attention-normalizer rela --encoder-learned-pos --decoder-learned-pos --output-alpha 1.5 "
OTHERS += "--encoder-normalize-before --decoder-normalize-before --activation-fn gelu"


def model_of(flags: str):
    """In float32, with weights so large that heads are sparse and probabilities unequal."""
    args = parse(f"{SMALL} {flags}")
    torch.manual_seed(1)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, translation_task()).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def batches(symbols: int):
    """Sources and targets of all kinds of sizes; padding on both sides, and nothing but padding."""
    for batch, source, target in ((1, 1, 1), (1, 30, 4), (3, 2, 12), (5, 17, 7), (2, 3, 40)):
        tokens = torch.randint(4, symbols, (batch, source))
        tokens[1:2, source // 2 :], tokens[2:3, : source // 2] = 1, 1
        yield tokens, torch.randint(4, symbols, (batch, target))


@pytest.mark.nightly  # test_exports.py has an export, which compares log-probabilities, and translates by it
@pytest.mark.parametrize(
    "flags",
    (
        "--alpha-init-mean 0.5 --length-scaling --encoder-normalize-before",
        OTHERS,
        "--attention-normalizer softmax --no-token-positional-embeddings",
    ),
)
def test_log_probabilities_are_the_models(flags, tmp_path):
    model = model_of(flags)
    onnx_folder.write_graphs(model, tmp_path)
    symbols = model.decoder.embed_tokens.num_embeddings
    for source, target in batches(symbols):
        lengths = source.ne(1).sum(1)
        with torch.no_grad():
            expected = model.get_normalized_probs(model(source, lengths, target), True)
        found = onnx_folder.forced(tmp_path, source, target)
        torch.testing.assert_close(found.exp(), expected.exp(), rtol=0, atol=1e-5)
        least = -5.0 if "output-alpha" in flags else -torch.inf  # near its threshold p has few digits
        torch.testing.assert_close(found.clamp_min(least), expected.clamp_min(least), rtol=1e-5, atol=1e-5)
    check_noticed(model, partial(onnx_folder.forced, tmp_path))


def test_models_that_are_refused():
    assert onnx_folder.unsupported_model(build()) is None
    for flags, words in (
        ("--latent-alignment", "latent"),
        ("--adaptive-softmax-cutoff 10", "adaptive softmax"),
        ("--no-cross-attention", "attend to the source"),
    ):
        assert words in onnx_folder.unsupported_model(build(flags))
    assert "convert_checkpoint" in onnx_folder.unsupported_model(build(arch="transformer"))
    model = build()
    model.decoder.layers[0].encoder_attn.num_heads = 1
    assert "fewer heads" in onnx_folder.unsupported_model(model)


def test_a_translation_is_one_line():
    """Whatever bytes the model writes."""
    translator = object.__new__(onnx_translate.Translator)
    translator.pieces = SimpleNamespace(encode=lambda *_, **__: ["a"], decode="".join)
    translator.numbers, translator.symbols = {}, ["a", "\n", "b"]
    translator.search = lambda *_: [0, 1, 2]
    assert translator("a", 1) == "a b"
