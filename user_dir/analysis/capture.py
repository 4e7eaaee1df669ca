"""The seam between models and analysis: attention weights and α's out, nothing else known of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq import checkpoint_utils, utils
from torch import Tensor, nn
from tqdm import tqdm

from ..checkpoints import load_checkpoint, model_name
from ..corpora import Corpus
from ..errors import UserError
from ..evaluation import translation_direction


def load_model(checkpoint: str | Path, corpus: Corpus):
    """The model of a checkpoint, to evaluate and on a GPU if there is one, and its task over ``corpus``."""
    state = load_checkpoint(checkpoint)
    translation_direction(state, checkpoint, corpus)
    name = model_name(state)
    if not name.startswith("adaptively_sparse_transformer"):
        raise UserError(f"{checkpoint} is of a {name}, not of an adaptively_sparse_transformer")
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(corpus.bin), "alpha_log": None}
    )
    model = models[0].eval()
    return model.cuda() if torch.cuda.is_available() else model, task


def batches(task, subset: str, max_tokens: int = 4096) -> Iterator[dict]:
    """The batches of a data subset, with teacher forcing, in fairseq's form; shows a progress bar."""
    task.load_dataset(subset)
    iterator = task.get_batch_iterator(
        task.dataset(subset), max_tokens=max_tokens, max_positions=(1024, 1024), ignore_invalid_inputs=True
    ).next_epoch_itr(shuffle=False)
    for sample in tqdm(iterator, desc=subset, unit="batch", disable=None):
        if sample:
            yield utils.move_to_cuda(sample) if torch.cuda.is_available() else sample


@contextmanager
def captured_attention(model) -> Iterator[dict[str, list[Tensor]]]:
    """While open, each forward of ``model`` leaves its attention weights in the dict that this yields.

    By attention type, a list over layers of (B, H, T, S); rows and columns of padding are there too.
    """
    captured: dict[str, list[Tensor]] = {}
    handles = []

    def ask_for_weights(module: nn.Module, args, kwargs):
        return args, {**kwargs, "need_weights": True, "need_head_weights": True}

    def keep(layers: list, layer: int):
        def hook(module: nn.Module, args, output):
            layers[layer] = output[1].detach().transpose(0, 1)  # (H, B, T, S) → (B, H, T, S)

        return hook

    for attention_type, attentions in model.attentions().items():
        captured[attention_type] = [torch.empty(0)] * len(attentions)
        for layer, attention in enumerate(attentions):
            handles.append(attention.register_forward_pre_hook(ask_for_weights, with_kwargs=True))
            handles.append(attention.register_forward_hook(keep(captured[attention_type], layer)))
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


def possible_pairs(sample: dict, padding: int) -> dict[str, Tensor]:
    """For each attention type, which pairs of query and key there are: (B, T, S), true if neither is padding.

    In decoder self-attention a query sees itself and what precedes it.
    """
    source = sample["net_input"]["src_tokens"].ne(padding)  # (B, S)
    target = sample["net_input"]["prev_output_tokens"].ne(padding)  # (B, T)
    past = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).tril()
    return {
        "encoder_self": source[:, :, None] & source[:, None, :],
        "decoder_self": target[:, :, None] & target[:, None, :] & past,
        "decoder_context": target[:, :, None] & source[:, None, :],
    }
