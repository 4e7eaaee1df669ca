"""α-entmax attention in the models of transformers: importing this registers ``alpha_entmax``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, PreTrainedModel
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask
from transformers.utils.output_capturing import _active_collector

from ..attention import Alpha, AlphaConfig, attention
from ..attention.dial import keys_per_query

NAME = "alpha_entmax"
SETTINGS = "alpha_entmax"
"""Key of a model's config: which attention modules have α's, and how they are set."""

# Arguments of attention functions that change nothing here, or that the mask takes into account already.
_IGNORED = {"cache_position", "is_causal", "num_items_in_batch", "output_attentions", "return_dict"}
_IGNORED |= {"output_hidden_states", "output_router_logits", "past_key_values", "position_embeddings"}
_IGNORED |= {"position_ids", "sliding_window", "use_cache"}


def entmax_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention with the α's of ``module``, in the form that transformers calls.

    Args:
        module: an attention module of a model that has gone through :func:`sparsify`.
        query: (B, H, T, D).
        key, value: (B, H_kv, S, D), where H is a multiple of H_kv.
        attention_mask: of :func:`entmax_mask`; or (B or 1, H or 1, T, S), added to the scores.
        scaling: factor of the scores; 1/√D by default.
        dropout: probability of dropping a weight.
        kwargs: further arguments of models.

    Returns:
        The output (B, T, H, D); and the weights (B, H, T, S) if the model returns its attentions, else None.

    Raises:
        ValueError: the module has no α, or ``kwargs`` has something that changes the scores.
    """
    alpha, kind = getattr(module, "alpha", None), type(module).__name__
    for name in sorted(kwargs.keys() - _IGNORED):
        if kwargs[name] is not None and kwargs[name] is not False:
            raise ValueError(f"{NAME} attention cannot compute with {name}, which {kind} has")
    if not isinstance(alpha, Alpha):
        raise ValueError(f"{kind} has no α: call sparsify(model), or load the model by load_sparsified")
    if key.size(1) != query.size(1):
        key, value = (x.repeat_interleave(query.size(1) // x.size(1), 1) for x in (key, value))
    if scaling is not None and scaling != query.size(-1) ** -0.5:  # the kernels' own
        query = query * (scaling * query.size(-1) ** 0.5)
    padding, hidden, causal = None, None, False
    if attention_mask is not None and attention_mask.dim() == 4:
        hidden = ~attention_mask if attention_mask.dtype == torch.bool else attention_mask
    else:
        padding = None if attention_mask is None else ~attention_mask
        is_causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        causal = causal and query.size(2) == key.size(2)  # a single query sees all keys
    counts = alpha.keys is not None and module.training
    collected = any("attentions" in name for name in _active_collector.get() or ())  # by output_attentions
    wanted = kwargs.get("output_attentions") or getattr(module.config, "output_attentions", False)
    masks, needed = (padding, hidden, causal), bool(wanted or collected or counts)
    output, weights = attention(query, key, value, alpha.value(), *masks, dropout, need_weights=needed)
    if counts:
        if hidden is not None and hidden.dtype == torch.bool:
            padding = hidden.all(2)[:, 0]
        of_queries = None if attention_type(module) == "decoder_context" else padding
        alpha.keys.append(keys_per_query(weights, of_queries))
    return output.transpose(1, 2).contiguous(), weights


def entmax_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable = causal_mask_function,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor | None:
    """The mask of :func:`entmax_attention`, true where a key is attended to; arguments are transformers'.

    If only padding and causality hide keys from queries, it is the padding mask (B, S), or None without
    padding, which the fused kernels take; otherwise, for windows, packed sequences or static caches, it has
    all pairs (B, 1, T, S).
    """
    bidirectional = mask_function is bidirectional_mask_function
    last = q_offset + q_length == kv_length and q_length in (1, kv_length)
    causal = mask_function is causal_mask_function and last
    whole = attention_mask is None or attention_mask.shape == (batch_size, kv_length)
    skip = kwargs.get(f"allow_is_{'bidirectional' if bidirectional else 'causal'}_skip", True)
    if (bidirectional or causal) and whole and kv_offset == 0 and skip:
        return attention_mask
    kwargs |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    kwargs |= {"mask_function": mask_function, "attention_mask": attention_mask}
    return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, **kwargs)


AttentionInterface.register(NAME, entmax_attention)
AttentionMaskInterface.register(NAME, entmax_mask)


def sparsify(
    model: PreTrainedModel,
    alpha: float | AlphaConfig | None = None,
    where: str | Iterable[str] = "all",
) -> PreTrainedModel:
    """Give the attention modules of a model α-entmax, with an α for each head as a submodule ``alpha``.

    Args:
        model: a model whose attention goes through transformers' attention interface; changed in place.
        alpha: one constant α, from 1; or how α's are set. By default they are learned and start at 1.01,
            with outputs that are nearly those of softmax.
        where: names of attention modules, or of modules that contain some, as in ``model.named_modules()``.
            All others get softmax.

    Returns:
        ``model``, whose config remembers the settings, so that ``save_pretrained`` writes all that
        :func:`load_sparsified` needs.

    Raises:
        ValueError: the model has no such attention, or a name of ``where`` no attention; α's are tied over
            modules, or are not those of α-entmax.
    """
    if not isinstance(alpha, AlphaConfig):
        alpha = AlphaConfig(alpha_init=1.01) if alpha is None else AlphaConfig(fixed_alpha=alpha)
    if alpha.attention_normalizer != "entmax" or alpha.alpha_tying not in ("none", "layer"):
        raise ValueError("sparsify computes entmax with alpha_tying none or layer")
    modules = dict(attentions_of(model))
    if not modules or not (model._supports_sdpa or model._supports_attention_backend):
        kind = type(model).__name__
        raise ValueError(f"the attention of {kind} does not use transformers' attention interface and masks")
    names = [""] if where == "all" else [where] if isinstance(where, str) else list(where)
    chosen = set()
    for name in names:
        inside = {module for module in modules if not name or f"{module}.".startswith(f"{name}.")}
        if not inside:
            raise ValueError(f"where names {name}, in which no attention is; one is {next(iter(modules))}")
        chosen |= inside
    for name, module in modules.items():
        config = alpha if name in chosen else AlphaConfig(fixed_alpha=1.0)
        like = next(module.parameters())
        module.alpha = Alpha(heads_of(module), config).to(like.device)
    model.set_attn_implementation(NAME)
    setattr(model.config, SETTINGS, {"alpha": asdict(alpha), "where": where if where == "all" else names})
    return model


def load_sparsified(auto_class: Any, folder: str, **options: Any) -> PreTrainedModel:
    """Load a model that was saved after :func:`sparsify`, with its α's.

    Args:
        auto_class: such as ``AutoModelForMaskedLM``, or the class of the model.
        folder: a folder that ``save_pretrained`` wrote, or a name on the hub.
        options: as for ``from_pretrained``.

    Raises:
        ValueError: the model was saved without α's.
    """
    config = AutoConfig.from_pretrained(folder, **options)
    settings = getattr(config, SETTINGS, None)
    if settings is None:
        raise ValueError(f"{folder} was saved without α's: call from_pretrained and sparsify(model)")
    mapping = getattr(auto_class, "_model_mapping", None)
    original = auto_class if mapping is None else mapping[type(config)]

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original.__init__(self, *args, **kwargs)
        sparsify(self, AlphaConfig(**settings["alpha"]), settings["where"])

    body = {"__init__": init, "__module__": original.__module__}  # by which parameters are converted
    model = type(original.__name__, (original,), body).from_pretrained(folder, **options)
    model.__class__ = original
    return model


def attentions_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules, by name, whose forward calls the function that the config names."""
    for name, module in model.named_modules():
        code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
        if code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names:
            yield name, module


def attention_type(module: Any) -> str:
    """The type of an attention module: one of :data:`~user_dir.attention.ATTENTION_TYPES`."""
    if getattr(module, "is_causal", False):
        return "decoder_self"
    crosses = getattr(module, "is_cross_attention", getattr(module, "is_decoder", False))
    return "decoder_context" if crosses or "CrossAttention" in type(module).__name__ else "encoder_self"


def heads_of(module: Any) -> int:
    """The number of heads, which transformers' models call by several names."""
    for owner in (module, module.config):
        for name in ("num_heads", "num_attention_heads", "n_heads"):
            if hasattr(owner, name):
                return getattr(owner, name)
    raise ValueError(f"{type(module).__name__} does not say how many heads it has")
