"""Our models train with simulated 8-bit integers, on a CPU too, and translate with them."""

import pytest
import torch
from fairseq.modules.quantization.scalar.modules import IntLinear
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import SMALL, batch, dictionary, parse
from torch import nn

from user_dir.modules.linear import Linear


@pytest.mark.parametrize(
    "arch, flags", [("adaptively_sparse_transformer", "--encoder-normalize-before"), ("transformer", "")]
)
def test_every_linear_layer_is_quantized_and_learns(arch, flags):
    words = dictionary()
    task = TranslationTask(TranslationConfig(), words, words)
    model = task.build_model(parse(f"{SMALL} --quant-noise-scalar 0.5 {flags}", arch)).train()
    kinds = {type(module) for module in model.modules()}
    assert IntLinear in kinds and not kinds & {nn.Linear, Linear}
    sample = batch()
    model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])[0].sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())
    generator = task.build_generator([model.eval()], parse(""))
    found = task.inference_step(
        generator, [model], {"net_input": {name: sample[name] for name in ("src_tokens", "src_lengths")}}
    )
    assert len(found) == len(sample["src_tokens"])


def test_what_has_no_counterpart_is_still_missing():
    from fairseq.modules.quantization.scalar import utils

    assert utils.MAPPING[Linear] is utils.MAPPING[nn.Linear] is IntLinear
    with pytest.raises(KeyError):
        utils.MAPPING[nn.LayerNorm]


def test_integers_are_close_to_the_weights():
    from fairseq.modules.quantization.scalar import ops

    weight = torch.linspace(-1, 1, 256)
    rounded, scale, _ = ops.emulate_int(weight, 8, "histogram")
    assert (rounded - weight).abs().max() < 2 * scale and len(rounded.unique()) <= 256


def test_a_training_that_nothing_can_load_is_refused():
    from fairseq.quantization_utils import Quantizer

    with pytest.raises(SystemExit, match=r"mine\.yaml"):
        Quantizer(config_path="mine.yaml", max_epoch=1, max_update=0)
