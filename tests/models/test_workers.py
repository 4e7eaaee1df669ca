"""The model inside fairseq's wrappers for distributed training: every parameter must get a gradient.

One worker is enough, because torch's wrapper counts the gradients of each worker separately.
"""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch
from fairseq.models import DistributedFairseqModel
from helpers import MODEL_TOLERANCE, batch, build
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

LAYER_DROP = "--encoder-layerdrop 0.5 --decoder-layerdrop 0.5"
VARIANTS = (
    "--alpha-freeze-updates 2",
    "--encoder-self-fixed-alpha 1.3 --decoder-self-attention-normalizer softmax",
    "--alpha-schedule linear --alpha-schedule-updates 2 --alpha-schedule-then learned",
    "--alpha-tying model --checkpoint-activations",
)


@pytest.fixture
def one_worker(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield distributed.group.WORLD
    distributed.destroy_process_group()


def train(wrapped, model, updates=3):
    """Run some updates without an optimizer; returns the last gradients by parameter name."""
    sample = batch()
    model.train()
    for update in range(updates):
        model.zero_grad()
        model.set_num_updates(update)
        torch.manual_seed(update)  # for LayerDrop; fairseq also seeds every update
        logits, _ = wrapped(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), sample["target"].flatten(), ignore_index=model.encoder.padding_idx
        ).backward()
        if hasattr(wrapped, "all_reduce_grads"):
            wrapped.all_reduce_grads()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same_gradients(gradients, expected) -> None:
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        other = expected[name]
        other = torch.zeros_like(gradient) if other is None else other
        torch.testing.assert_close(
            gradient, other, **MODEL_TOLERANCE, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("flags", VARIANTS)
def test_every_parameter_has_a_gradient_in_the_wrapper_of_torch(one_worker, flags):
    model, alone = build(flags), build(flags)
    wrapped = DistributedDataParallel(model, process_group=one_worker)
    assert_same_gradients(train(wrapped, model), train(alone, alone))


@pytest.mark.parametrize("flags", ("", "--checkpoint-activations --alpha-tying model"))
def test_layer_drop_with_find_unused_parameters(one_worker, flags):
    flags = f"{LAYER_DROP} {flags}"
    model, alone = build(flags), build(flags)
    wrapped = DistributedDataParallel(model, process_group=one_worker, find_unused_parameters=True)
    gradients, expected = train(wrapped, model), train(alone, alone)
    assert any(gradient is None for gradient in expected.values()), "no layer was dropped"
    for name, gradient in expected.items():
        if gradient is not None:
            torch.testing.assert_close(gradients[name], gradient, **MODEL_TOLERANCE)


@pytest.mark.parametrize("flags", (*VARIANTS, LAYER_DROP))
def test_every_parameter_has_a_gradient_in_the_wrapper_of_fairseq(one_worker, flags):
    model, alone = build(flags), build(flags)
    settings = Namespace(ddp_backend="legacy_ddp", tpu=False)
    wrapped = DistributedFairseqModel(settings, model, one_worker, torch.device("cpu"))
    gradients = train(wrapped, model)
    assert all(gradient is not None for gradient in gradients.values())
    assert_same_gradients(gradients, train(alone, alone))
