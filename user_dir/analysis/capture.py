"""The interface between models and analysis: load a model, capture its attention, mask its heads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from fairseq import utils
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, FairseqLanguageModel
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..attention_types import ATTENTION_TYPES
from ..checkpoints import load_checkpoint, model_name, save_checkpoint
from ..corpora import Corpus
from ..entmax import entmax_loss
from ..errors import UserError
from ..models.from_settings import OURS, from_stock
from ..translation import loading
from ..translation.direction import translation_direction

Head = tuple[str, int, int]
"""A head: attention type, layer and head, the latter two counted from 0."""


def load_model(checkpoint: str | Path, corpus: Corpus, *, language: str | None = None, cpu: bool = False):
    """Load the model of a checkpoint, in evaluation mode, and its task over ``corpus``.

    The model is on a GPU if there is one, unless ``cpu``. A stock ``transformer`` is converted to our model
    with α = 1, which is softmax. A language model is analysed on one side of the corpus: ``language``, or its
    second language.

    Raises:
        UserError: the checkpoint is missing, or is of another model or corpus.
    """
    state = load_checkpoint(checkpoint)
    name = model_name(state)
    family = ARCH_MODEL_NAME_REGISTRY.get(name)
    if family == "adaptively_sparse_transformer_lm":
        return loading.load_language_model(Path(checkpoint), corpus, language, cpu=cpu)
    direction = translation_direction(state, Path(checkpoint), corpus)
    if family == "transformer":
        with tempfile.TemporaryDirectory() as folder:
            converted = Path(folder) / "softmax.pt"
            save_checkpoint(from_stock(state, 1.0), converted)
            return loading.load_model(converted, corpus, direction, cpu=cpu)
    if family not in OURS:
        raise UserError(
            f"{checkpoint} is of a {name}; the analysis is for {', '.join(OURS)} and fairseq's transformer"
        )
    return loading.load_model(Path(checkpoint), corpus, direction, cpu=cpu)


def on_device(sample: dict, model) -> dict:
    """A batch of fairseq's on the device of a model."""
    device = next(model.parameters()).device
    return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample


def run(model, sample: dict):
    """The output of a model for a batch, with teacher forcing; a language model reads the target alone."""
    if isinstance(model, FairseqLanguageModel):
        return model(sample["net_input"]["prev_output_tokens"])
    return model(**sample["net_input"])


@contextmanager
def captured_attention(model, types: Sequence[str] = ATTENTION_TYPES) -> Iterator[dict[str, list[Tensor]]]:
    """While open, each forward pass of ``model`` stores its attention weights in the yielded dict.

    By attention type, of these ``types``, a list over layers of (B, H, T, S), including rows and columns of
    padding.
    """
    captured: dict[str, list[Tensor]] = {}

    def ask_for_weights(module: nn.Module, args, kwargs):
        return args, {**kwargs, "need_weights": True, "need_head_weights": True}

    def keep(layers: list, layer: int):
        def hook(module: nn.Module, args, output):
            layers[layer] = output[1].detach().transpose(0, 1)  # (H, B, T, S) → (B, H, T, S)

        return hook

    with ExitStack() as hooks:
        for attention_type, attentions in model.attentions().items():
            if attention_type not in types:
                continue
            layers = captured[attention_type] = [torch.empty(0)] * len(attentions)
            for layer, attention in enumerate(attentions):
                asked = attention.register_forward_pre_hook(ask_for_weights, with_kwargs=True)
                kept = attention.register_forward_hook(keep(layers, layer))
                hooks.callback(asked.remove)
                hooks.callback(kept.remove)
        yield captured


@contextmanager
def masked_heads(model, heads: Iterable[Head]) -> Iterator[None]:
    """While open, the outputs of ``heads`` are set to zero before the output projection.

    The projection's bias still applies. The model's parameters do not change.

    Raises:
        UserError: the model has no such head.
    """
    attentions = model.attentions()
    masked: dict[nn.Module, list[int]] = {}
    for attention_type, layer, head in heads:
        layers = attentions.get(attention_type, [])
        if not 0 <= layer < len(layers) or not 0 <= head < layers[layer].num_heads:
            raise UserError(f"the model has no {attention_type} layer {layer} head {head}; both count from 0")
        masked.setdefault(layers[layer], []).append(head)

    def zero(chosen: list[int]):
        def register(attention: nn.Module) -> RemovableHandle:
            def hook(module: nn.Module, args):
                outputs = args[0].unflatten(-1, (attention.num_heads, -1)).clone()  # (T, B, C) → (T, B, H, D)
                outputs[..., chosen, :] = 0
                return (outputs.flatten(-2), *args[1:])

            return attention.out_proj.register_forward_pre_hook(hook)

        return register

    with ExitStack() as hooks:
        for attention, chosen in masked.items():
            while_it_runs(hooks, attention, zero(chosen))
        yield


def while_it_runs(
    hooks: ExitStack, module: nn.Module, register: Callable[[nn.Module], RemovableHandle]
) -> None:
    """While ``hooks`` is open, ``register(module)`` adds a hook for the time of each of its forward passes.

    For hooks of its projections, which a post-editor may share with other attentions.
    """
    added: list[RemovableHandle] = []
    hooks.callback(lambda: [each.remove() for each in added])  # of a pass that failed
    begin = module.register_forward_pre_hook(lambda module, args: added.append(register(module)))
    end = module.register_forward_hook(lambda *_: added.pop().remove())
    hooks.callback(begin.remove)
    hooks.callback(end.remove)


def all_heads(model) -> list[Head]:
    """All heads of ``model``, by attention type, layer and head."""
    return [
        (attention_type, layer, head)
        for attention_type, attentions in model.attentions().items()
        for layer, attention in enumerate(attentions)
        for head in range(attention.num_heads)
    ]


def row_sums(model) -> dict[str, str]:
    """By attention type that the model has: what the weights of a query sum to, as in :data:`.ROW_SUMS`."""
    return {
        attention_type: attentions[0].normalizer.row_sums
        for attention_type, attentions in model.attentions().items()
        if attentions
    }


def output_norms(model) -> dict[str, list[Tensor]]:
    """The L2 norm of each head's slice of the output projection: by attention type and layer, (H,).

    This is the Frobenius norm of the D columns of W^O that read the head (Correia et al. 2019, section 5).
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
    """The summed −log p of a batch's target tokens, including ``</s>``, in nats, and their number.

    For a model with ``--output-alpha``, where p may be 0, the α-entmax loss instead.
    """
    output = run(model, sample)
    normalizer = getattr(model.decoder, "output_normalizer", None)
    if normalizer is not None and not normalizer.is_softmax:
        losses = entmax_loss(output[0], sample["target"], normalizer.alpha(), ignore_index=padding)
        return losses.double().sum().item(), int(sample["target"].ne(padding).sum())
    log_p = model.get_normalized_probs(output, log_probs=True, sample=sample)  # (B, T, V)
    target = sample["target"]
    chosen = log_p.gather(-1, target[..., None])[..., 0]
    real = target.ne(padding)
    return -chosen[real].double().sum().item(), int(real.sum())


def possible_pairs(sample: dict, padding: int) -> dict[str, Tensor]:
    """Masks of existing query-key pairs by attention type, (B, T, S): true if neither is padding.

    In decoder self-attention a query attends to itself and to previous positions only.
    """
    source = sample["net_input"]["src_tokens"].ne(padding)  # (B, S)
    target = sample["net_input"]["prev_output_tokens"].ne(padding)  # (B, T)
    past = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).tril()
    return {
        "encoder_self": source[:, :, None] & source[:, None, :],
        "decoder_self": target[:, :, None] & target[:, None, :] & past,
        "decoder_context": target[:, :, None] & source[:, None, :],
    }
