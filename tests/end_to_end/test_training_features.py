"""fairseq's training features in combination: LayerDrop, activation checkpointing, updates of several
batches, a moving average of the parameters, half precision; uninterrupted and resumed.
And BPE dropout.
"""

from __future__ import annotations

import shutil

import pytest
import torch
from commands import PLUGIN, here, lines, read_alpha_log, script, train
from fairseq import checkpoint_utils
from same_training import assert_same_training

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow

ATTENTION_TYPES = ("encoder_self", "decoder_self", "decoder_context")
FEATURES = (
    "--encoder-layerdrop 0.5 --decoder-layerdrop 0.5 --checkpoint-activations --update-freq 2 --store-ema "
    "--ema-decay 0.5 --cpu --max-tokens 300 --save-interval-updates 3 --max-update 6 --log-interval 1 "
    "--disable-validation --no-epoch-checkpoints --alpha-log-interval 1"
)
HALF = {  # flattened gradients need a GPU
    torch.float16: ["--fp16", "--fp16-no-flatten-grads", "--ema-fp32"],
    torch.bfloat16: ["--bf16", "--ema-fp32"],
}


def through_and_resumed(corpus, tmp_path, *flags):
    """The folders of a training of 6 updates, and of one resumed from its checkpoint of update 3."""
    folders = through, resumed = tmp_path / "through", tmp_path / "resumed"
    for folder in folders:
        if folder is resumed:
            resumed.mkdir()
            shutil.copy(through / "checkpoint_1_3.pt", resumed / "checkpoint_last.pt")
            shutil.copy(through / "alpha.jsonl", resumed)
        train(corpus, folder, *FEATURES.split(), "--alpha-log", folder / "alpha.jsonl", *flags)
    return folders


@pytest.fixture(scope="module")
def runs(small, tmp_path_factory):
    return through_and_resumed(small, tmp_path_factory.mktemp("features"))


def alphas_by_update(folder) -> torch.Tensor:
    """α by update, attention type, layer and head."""
    lines = read_alpha_log(folder / "alpha.jsonl")
    assert [line["update"] for line in lines] == list(range(7))
    return torch.tensor([[line[name] for name in ATTENTION_TYPES] for line in lines], dtype=torch.float64)


def test_resumed_equals_through(runs):
    assert_same_training(*runs)


def test_alphas_of_dropped_layers_do_not_change(runs):
    """For layers that were dropped in both batches of an update."""
    moved = (alphas_by_update(runs[0]).diff(dim=0) != 0).any(-1)  # (updates, types, layers)
    assert moved.unique().tolist() == [False, True]
    assert torch.equal(moved[:, 1], moved[:, 2]), "both attentions of a decoder layer are dropped together"


def test_the_moving_average_is_of_the_parameter_a_and_can_be_used(runs, small, tmp_path):
    """The averaged model's α is that of the averaged a, whose average is computed here from the α log."""
    alphas = alphas_by_update(runs[0])
    average, *others = torch.logit(alphas[1:] - 1)  # fairseq's average starts at the first update
    for a in others:
        average = 0.5 * average + 0.5 * a
    path = tmp_path / "ema.pt"
    script("average", "--path", runs[0] / "checkpoint_last.pt", "--ema", "--output", path)
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(small / "bin")})
    averaged = torch.stack([torch.stack(model.alphas()[name]) for name in ATTENTION_TYPES]).double()
    torch.testing.assert_close(averaged, 1 + torch.sigmoid(average), rtol=0, atol=1e-5)
    assert (averaged - alphas[-1]).abs().max() > 1e-4


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", HALF)
def test_half_precision(corpus, tmp_path, dtype):
    """Parameters, including α's, are in half precision; fairseq's optimizer and average use float32."""
    runs = through_and_resumed(corpus, tmp_path, *HALF[dtype])
    left, right = (load_checkpoint(folder / "checkpoint_last.pt") for folder in runs)
    for name, value in left["model"].items():
        # When resuming, fairseq starts from these parameters.
        torch.testing.assert_close(right["model"][name], value, rtol=0, atol=5 * torch.finfo(dtype).eps)
    a = left["model"]["encoder.layers.0.self_attn.alpha.a"]  # saved in float32
    assert torch.equal(a, a.to(dtype).float())
    moving = left["extra_state"]["ema_fp32_params"]["encoder.layers.0.self_attn.alpha.a"]
    assert moving.dtype == torch.float32 and torch.isfinite(moving).all()
    alphas = alphas_by_update(runs[0])
    assert (alphas[-1] != alphas[0]).any(-1).all(), "the α's of a layer did not learn"


def test_bpe_dropout(small, tmp_path):
    """It trains with a worker, and the model translates without the task's flags."""
    flags = "--task translation_with_bpe_dropout --bpe-dropout 0.2 --num-workers 1 --disable-validation"
    train(small, tmp_path, *flags.split(), "--max-update", "2")
    words = [small / "bin", *PLUGIN, "--path", tmp_path / "checkpoint_last.pt"]
    words += ["--gen-subset", "valid", "--max-len-b", "3", "--beam", "1"]
    assert here("generate", *words).count("H-") == len(lines(small / "text" / "valid.de"))
