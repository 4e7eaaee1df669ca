"""Exported to ONNX, entmax and the layer compute in onnxruntime what they compute here."""

import pytest
import torch
from helpers import entmax_oracle
from torch import nn

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from user_dir.attention import EntmaxAttention  # noqa: E402
from user_dir.entmax import entmax, onnx_translations  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
# What is exported does not depend on it; the layer that it is compared with takes the kernels.
pytestmark.append(pytest.mark.parametrize("backend", ["native"], indirect=True))


class Entmax(nn.Module):
    def forward(self, scores, alpha):
        return entmax(scores, alpha, -2), entmax(scores, 1.5), entmax(scores, 1.0)


def exported(module, args, dims, path):
    """The module as a function of tensors, computed by onnxruntime from a file."""
    options = {"dynamo": True, "verbose": False, "custom_translation_table": onnx_translations()}
    torch.onnx.export(module.eval(), args, path, dynamic_shapes=dims, **options)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]

    def call(*tensors):
        outputs = session.run(None, {name: x.numpy() for name, x in zip(names, tensors)})
        return [torch.from_numpy(output) for output in outputs]

    return call


def dim(name):
    return torch.export.Dim(name, min=1, max=4096)


def test_entmax_for_every_alpha(tmp_path):
    args, dims = (torch.randn(2, 7, 4), torch.full((4,), 1.5)), ({0: dim("rows"), 1: dim("scores")}, None)
    call = exported(Entmax(), args, dims, tmp_path / "entmax.onnx")
    for alphas in ([1.0, 1.0000005, 1.0001, 1.01], [1.2, 1.5, 1.9, 2.0], [2.5, 3.0, 1.0, 1.5]):
        for length, scale in ((1, 1.0), (7, 1.0), (40, 8.0), (900, 0.1)):
            scores, alpha = torch.randn(3, length, 4) * scale, torch.tensor(alphas)
            scores[0] = float("-inf")
            scores[1, 1::3] = float("-inf")
            outputs = call(scores, alpha)
            expected = (
                entmax_oracle(scores, alpha, -2),
                entmax_oracle(scores, 1.5),
                entmax_oracle(scores, 1.0),
            )
            for output, weights in zip(outputs, expected):
                torch.testing.assert_close(output, weights.float(), rtol=0, atol=1e-5)
            assert (outputs[0][0] == 0).all() and (outputs[1][0] == 0).all()


@pytest.mark.nightly
def test_the_layer_on_random_lengths_and_masks(tmp_path):
    torch.manual_seed(1)
    layer = EntmaxAttention(12, 3, batch_first=True)
    batch, queries, keys = map(dim, ("batch", "queries", "keys"))
    dims = {"query": {0: batch, 1: queries}, "key": {0: batch, 1: keys}, "value": {0: batch, 1: keys}}
    dims |= {
        "key_padding_mask": {0: batch, 1: keys},
        "need_weights": None,
        "attn_mask": {0: queries, 1: keys},
    }

    def random(batch, queries, keys):
        x = [3 * torch.randn(batch, length, 12) for length in (queries, keys, keys)]
        return *x, torch.rand(batch, keys) < 0.3, True, torch.randn(queries, keys)

    call = exported(layer, random(2, 5, 7), dims, tmp_path / "layer.onnx")
    for sizes in ((1, 1, 1), (3, 4, 9), (2, 40, 33), (2, 3, 300)):
        args = random(*sizes)
        with torch.no_grad():
            expected = layer(*args)
        outputs = call(*args[:4], args[5])
        torch.testing.assert_close(outputs, list(expected), rtol=0, atol=1e-5)
