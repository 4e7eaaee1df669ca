"""The seam between models and analysis: loading a model, capturing its attention, masking its heads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from fairseq import utils
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from torch import Tensor, nn
from tqdm import tqdm

from ..checkpoints import load_checkpoint, model_name, save_checkpoint
from ..corpora import Corpus
from ..errors import UserError
from ..models.from_settings import from_stock
from ..translation import loading

Head = tuple[str, int, int]
"""A head: attention type, layer and head, both from 0."""


def load_model(checkpoint: str | Path, corpus: Corpus, *, cpu: bool = False):
    """The model of a checkpoint, in eval mode, and its task over ``corpus``.

    It is on a GPU if there is one and not ``cpu``. A stock ``transformer`` comes as the same model with
    α = 1 in every head, which is softmax.

    Raises:
        UserError: no such checkpoint, or one of another model or corpus.
    """
    state = load_checkpoint(checkpoint)
    direction = loading.translation_direction(state, Path(checkpoint), corpus)
    name = model_name(state)
    family = ARCH_MODEL_NAME_REGISTRY.get(name)
    if family == "transformer":
        with tempfile.TemporaryDirectory() as folder:
            converted = Path(folder) / "softmax.pt"
            save_checkpoint({**from_stock(state, 1.0), "last_optimizer_state": None}, converted)
            return loading.load_model(converted, corpus, direction, cpu=cpu)
    if family != "adaptively_sparse_transformer":
        raise UserError(
            f"{checkpoint} is of a {name}, neither of an adaptively_sparse_transformer nor of fairseq's "
            "stock transformer"
        )
    return loading.load_model(Path(checkpoint), corpus, direction, cpu=cpu)


def batches(
    model,
    task,
    subset: str,
    *,
    max_tokens: int = 4096,
    sentences: int | None = None,
    in_order: bool = False,
    description: str | None = None,
) -> Iterator[dict]:
    """The batches of a data subset in fairseq's form, on the model's device; shows a progress bar.

    Args:
        model: what they are for.
        task: its task.
        subset: fairseq's name of the split.
        max_tokens: greatest size of a batch, in tokens of one side, padding included.
        sentences: only the first so many of the split; None for all.
        in_order: in the order of the corpus, not by length, which wastes less on padding.
        description: what the progress bar says; None for the subset's name.

    Raises:
        UserError: a sentence is longer than the model or ``max_tokens`` allows.
    """
    dataset = loading.load_split(task, subset)
    lengths = loading.check_lengths(dataset, subset, max_tokens, model, sentences)
    order = np.arange(len(lengths)) if in_order else np.argsort(lengths, kind="stable")
    device = next(model.parameters()).device
    with tqdm(total=len(order), desc=description or subset, unit="sentence", disable=None) as progress:
        for members in _parted(order, lengths, max_tokens):
            sample = dataset.collater([dataset[int(i)] for i in members])
            yield utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
            progress.update(len(members))


def _parted(order, lengths, max_tokens: int) -> Iterator[list[int]]:
    """Runs of ``order`` of at most ``max_tokens`` once each is padded to its longest."""
    members, longest = [], 0
    for i in order:
        longest = max(longest, int(lengths[i]))
        if longest * (len(members) + 1) > max_tokens:
            yield members
            members, longest = [], int(lengths[i])
        members.append(int(i))
    yield members


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


@contextmanager
def masked_heads(model, heads: Iterable[Head]) -> Iterator[None]:
    """While open, the output of each of ``heads`` is zero where it enters the output projection.

    The projection's bias stays. Nothing of the model is changed.

    Raises:
        UserError: the model has no such head.
    """
    attentions = model.attentions()
    by_layer: dict[tuple[str, int], list[int]] = {}
    for attention_type, layer, head in heads:
        layers = attentions.get(attention_type, [])
        if not 0 <= layer < len(layers) or not 0 <= head < layers[layer].num_heads:
            raise UserError(f"the model has no {attention_type} layer {layer} head {head}; both count from 0")
        by_layer.setdefault((attention_type, layer), []).append(head)

    def zero(masked: list[int], num_heads: int):
        def hook(module: nn.Module, args):
            outputs = args[0].unflatten(-1, (num_heads, -1)).clone()  # (T, B, C) → (T, B, H, D)
            outputs[..., masked, :] = 0
            return (outputs.flatten(-2), *args[1:])

        return hook

    handles = []
    for (attention_type, layer), masked in by_layer.items():
        attention = attentions[attention_type][layer]
        handles.append(attention.out_proj.register_forward_pre_hook(zero(masked, attention.num_heads)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def all_heads(model) -> list[Head]:
    """Every head of ``model``, by attention type, layer and head."""
    return [
        (attention_type, layer, head)
        for attention_type, attentions in model.attentions().items()
        for layer, attention in enumerate(attentions)
        for head in range(attention.num_heads)
    ]


def output_norms(model) -> dict[str, list[Tensor]]:
    """By attention type and layer, (H,): the L2 norm of each head's slice of the output projection.

    The norm over all entries of the D columns of W^O that read the head (Frobenius). Correia et al. 2019,
    section 5; point 3 of the statistics.
    """
    return {
        attention_type: [
            attention.out_proj.weight.detach()
            .double()
            .unflatten(1, (attention.num_heads, -1))  # (C, H, D)
            .pow(2)
            .sum((0, 2))
            .sqrt()
            for attention in attentions
        ]
        for attention_type, attentions in model.attentions().items()
    }


def negative_log_likelihood(model, sample: dict, padding: int) -> tuple[float, int]:
    """The summed −log p of the target tokens of a batch, ``</s>`` included, in nats, and their number."""
    output = model(**sample["net_input"])
    log_p = model.get_normalized_probs(output, log_probs=True, sample=sample)  # (B, T, V)
    target = sample["target"]
    chosen = log_p.gather(-1, target[..., None])[..., 0]
    real = target.ne(padding)
    return -chosen[real].double().sum().item(), int(real.sum())


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
