"""Attribution beside attention: which tokens a target word draws on, by three other measures.

- Gradient × input: the derivative of a target token's probability by the embedding of a token, times that
  embedding (Denil et al. 2014, https://arxiv.org/abs/1412.6815; the gradient alone is the saliency of
  Simonyan et al. 2014, https://arxiv.org/abs/1312.6034, and Li et al. 2016, https://aclanthology.org/N16-1082).
- Value zeroing: how much the output of a layer changes if the value vector of a token is set to zero (Mohebbi
  et al. 2023, https://aclanthology.org/2023.eacl-main.245; in encoder–decoder models as in their
  https://aclanthology.org/2023.emnlp-main.513).
- Attention rollout: attention and residual connections, multiplied through the layers (Abnar and Zuidema
  2020, https://aclanthology.org/2020.acl-main.385).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from ..errors import UserError
from ..models.sides import layers_of
from ..translation.loading import load_split
from .capture import captured_attention, on_device, run, while_it_runs
from .maps import SIDES, SentenceMaps
from .result_files import ModelAnalysis
from .split import Split

MEASURES = ("value_zeroing", "rollout", "gradient_input")
MAX_TOKENS = 4096  # of one side of the copies of a sentence that are computed at once


def with_attribution(analysis: ModelAnalysis, split: Split, sentences: int) -> ModelAnalysis:
    """The same analysis with attributions of the first ``sentences`` of its attention maps, for the report.

    Raises:
        UserError: there are no maps, or they are not of the split's sentences.
    """
    if analysis.maps is None:
        raise UserError(f"there are no attention maps of {analysis.name} to show attribution beside")
    dataset, found = load_split(split.task, split.subset), []
    for number in tqdm(range(min(sentences, len(analysis.maps))), desc="attribution", disable=None):
        maps = analysis.maps[number]
        sample = dataset.collater([dataset[number]]) if number < len(dataset) else None
        if sample is None or _tokens(split.task, sample) != (maps.source, maps.target):
            raise UserError(
                f"sentence {number} of {analysis.maps.path} is not that of {split.corpus.name}, {split.name}"
            )
        found.append(attribution(split.model, on_device(sample, split.model), maps))
    return replace(analysis, attributions=found)


def _tokens(task, sample: dict) -> tuple[list[str], list[str]]:
    source, target = sample["net_input"]["src_tokens"][0], sample["target"][0]
    return (
        [task.source_dictionary[token] for token in source.tolist()],
        [task.target_dictionary[token] for token in target.tolist()],
    )


def attribution(model, sample: dict, maps: SentenceMaps) -> dict[str, np.ndarray]:
    """All measures of one sentence, by ``MEASURE/ATTENTION TYPE``: (L, T, S) in the layout of its ``maps``.

    Gradient × input, which has no layers, is (1, T, S) and divided by the sum of its absolute values over all
    tokens, of the source and before the target token; it is 0 if the token's probability is.
    """
    zeroed = {name: each.cpu().numpy() for name, each in value_zeroing(model, sample).items()}
    products = {name: each.cpu().numpy()[None] for name, each in gradient_input(model, sample).items()}
    total = sum(np.abs(each).sum(-1, keepdims=True) for each in products.values())
    shares = {name: each / np.where(total > 0, total, 1) for name, each in products.items()}
    measures = zip(MEASURES, (zeroed, rollout(maps.weights), shares))
    return {f"{measure}/{name}": each for measure, found in measures for name, each in found.items()}


def gradient_input(model, sample: dict) -> dict[str, Tensor]:
    """e · ∂p/∂e for the probability p of each target token and the embedding e of each token it depends on.

    The embedding is the row of the embedding matrix, without positions. The sign says whether more of the
    token makes the target token more or less probable, to first order.

    Args:
        model: in evaluation mode, of :func:`.capture.load_model`.
        sample: one sentence in fairseq's form, without padding.

    Returns:
        ``decoder_context``: (T, S), a row for each target token, a column for each source token;
        ``decoder_self``: (T, T), a column for each token that the decoder read. float32 or wider.
    """
    target = sample["target"][0]
    sides = [side for side in (getattr(model, "encoder", None), model.decoder) if side is not None]
    embeddings = {id(side.embed_tokens): side.embed_tokens for side in sides}  # often one for both
    products: list[list[Tensor]] = [[] for _ in sides]
    for rows in _chunks(len(target), sample):
        leaves: list[Tensor] = []

        def leaf(module: nn.Module, args, output: Tensor, leaves=leaves) -> Tensor:
            leaves.append(output.detach().requires_grad_())
            return leaves[-1]

        with ExitStack() as hooks, torch.enable_grad():
            for embedding in embeddings.values():
                hooks.callback(embedding.register_forward_hook(leaf).remove)
            if (adaptive := getattr(model.decoder, "adaptive_softmax", None)) is not None:
                # fairseq changes the result in place, which it then cannot differentiate.
                hooks.callback(adaptive.lsm.register_forward_hook(lambda *each: each[-1].clone()).remove)
            copies = _copies(sample, len(rows))
            p = model.get_normalized_probs(run(model, copies), log_probs=False, sample=copies)  # (n, T, V)
            chosen = p[range(len(rows)), rows, target[rows]].sum()
            gradients = torch.autograd.grad(chosen, leaves, materialize_grads=True)  # 0 of a source not read
        for found, each, gradient in zip(products, leaves, gradients):
            found.append((each.detach() * gradient).sum(-1))
    *source, read = (torch.cat(found) for found in products)
    return {**({"decoder_context": source[0]} if source else {}), "decoder_self": read}


@torch.no_grad()
def value_zeroing(model, sample: dict) -> dict[str, Tensor]:
    """How much zeroing the value vector of key j changes the output of a layer for query i.

    It is the cosine distance of the layer's outputs, feed-forward part included, with and without the value
    vector, in all heads of one attention, while the layer's input stays as it is; divided by its sum over j.
    A key that no head of the layer attends to has exactly 0.

    Args:
        model: in evaluation mode, of :func:`.capture.load_model`.
        sample: one sentence in fairseq's form, without padding.

    Returns:
        By attention type, (L, T, S), a row for each query and a column for each key, in float64.
    """
    lengths = {"source": "src_tokens", "target_input": "prev_output_tokens"}
    with captured_attention(model) as weights:
        run(model, sample)
    found = {}
    for kind, attentions in model.attentions().items():
        if attentions:
            side = model.encoder if kind == "encoder_self" else model.decoder
            keys = sample["net_input"][lengths[SIDES[kind][1]]].size(1)
            parts = [
                _zeroed(model, _copies(sample, len(chunk) + 1), layers_of(side), attentions, chunk)
                for chunk in _chunks(keys, sample)
            ]
            unseen = torch.stack([layer[0] for layer in weights[kind]]).eq(0).all(1)  # (L, T, S)
            distances = torch.cat(parts, dim=-1).masked_fill(unseen, 0)  # not rounding either
            total = distances.sum(-1, keepdim=True)
            found[kind] = distances / total.where(total > 0, 1)
    return found


def _zeroed(model, copies: dict, layers: list, attentions: list, keys: list[int]) -> Tensor:
    """Distances (L, T, keys): of the copies of a sentence the first is whole, the others lack a key each."""
    distances: list[Tensor] = []

    def without_values(module: nn.Module, args, output: Tensor) -> Tensor:
        output = output.clone()  # (S, copies, C)
        output[keys, range(1, len(keys) + 1)] = 0
        return output

    def compare(module: nn.Module, args, output):
        x = output[0] if isinstance(output, tuple) else output  # (T, copies, C)
        unit = F.normalize(x.double(), dim=-1)
        # 1 − cos of two unit vectors is half their squared distance, which is exactly 0 for equal ones.
        distances.append((unit[:, 1:] - unit[:, :1]).square().sum(-1) / 2)
        whole = x[:, :1].expand_as(x).contiguous()
        return (whole, *output[1:]) if isinstance(output, tuple) else whole

    with ExitStack() as hooks:
        for layer, attention in zip(layers, attentions):
            while_it_runs(hooks, attention, lambda each: each.v_proj.register_forward_hook(without_values))
            hooks.callback(layer.register_forward_hook(compare).remove)
        run(model, copies)
    return torch.stack(distances)


def rollout(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Attention rollout up to each layer, with the residual connection of every attention.

    A state, a mixture of tokens, becomes A · (attended states) + itself, divided by the sum of these weights,
    where A is the mean attention of a layer's heads. The decoder's states mix the tokens that it read and,
    by context attention, those of the source, through the encoder's rollout: both together sum to 1.

    Args:
        weights: by attention type, the attention of every head (L, H, T, S).

    Returns:
        By attention type, (L, T, S) in float64: the share of each source token (``encoder_self``,
        ``decoder_context``) or token read (``decoder_self``) in each state after a layer.
    """
    means = {name: each.astype(np.float64).mean(1) for name, each in weights.items()}
    found = {}
    if "encoder_self" in means:
        state, layers = np.eye(means["encoder_self"].shape[-1]), []
        for attention in means["encoder_self"]:
            layers.append(state := _mixed(attention, state, state))
        found["encoder_self"] = np.stack(layers)
    if "decoder_self" in means:
        context, read = means.get("decoder_context"), means["decoder_self"].shape[-1]
        source = 0 if context is None else context.shape[-1]
        state, layers = np.eye(source + read)[source:], []
        encoded = np.eye(source) if "encoder_self" not in found else found["encoder_self"][-1]
        encoded = np.pad(encoded[:, :source], ((0, 0), (0, read)))
        for layer, attention in enumerate(means["decoder_self"]):
            state = _mixed(attention, state, state)
            if context is not None and layer < len(context):  # the top layer of a latent alignment has none
                state = _mixed(context[layer], encoded, state)
            layers.append(state)
        found["decoder_self"] = np.stack(layers)[..., source:]
        if context is not None:
            found["decoder_context"] = np.stack(layers)[: len(context), :, :source]
    return found


def _mixed(attention: np.ndarray, attended: np.ndarray, residual: np.ndarray) -> np.ndarray:
    return (attention @ attended + residual) / (attention.sum(-1, keepdims=True) + 1)


def _copies(sample: dict, count: int) -> dict:
    """A batch of copies of a sentence."""

    def repeated(value):
        return value.expand(count, *value.shape[1:]).contiguous() if isinstance(value, Tensor) else value

    net_input = {name: repeated(value) for name, value in sample["net_input"].items()}
    return {"net_input": net_input, "target": repeated(sample["target"])}


def _chunks(count: int, sample: dict) -> Iterator[list[int]]:
    """The numbers below ``count`` in groups, so that so many copies of a sentence fit into memory."""
    sides = (sample["net_input"][name].size(1) for name in ("src_tokens", "prev_output_tokens"))
    size = max(1, MAX_TOKENS // max(sides) - 1)
    for first in range(0, count, size):
        yield list(range(first, min(first + size, count)))
