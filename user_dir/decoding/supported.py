"""Which models our beam search computes as fairseq's does: those in which it knows everything."""

from __future__ import annotations

import functools
from functools import partial
from types import FunctionType

from torch import nn
from torch.nn.modules import module as torch_modules
from torch.utils.checkpoint import checkpoint

from ..attention.normalizers import NORMALIZERS
from ..models.latent_alignment import LatentAlignmentDecoder
from ..modules import AdaptivelySparseDecoderLayer, AdaptivelySparseEncoderLayer
from .kernels import unavailable
from .known import MODELS, NAMES, OFF


def unsupported_model(model: nn.Module, on_device: bool = False) -> str | None:
    """Why fairseq's own search is to use a model; None if ours can.

    Args:
        model: one of fairseq's.
        on_device: it is to be searched with as on a GPU.
    """
    modules = list(model.modules())
    reason = _unusual(model) or _unusual_attention(model)
    for module in modules:
        reason = reason or _unknown(module)
    if reason is not None:
        return reason
    for kind in {type(module) for module in modules}:
        if _functions(kind) != _functions_at_first(kind):
            return f"a method of {kind.__name__} was replaced"
    parameters = [each for module in modules for each in module._parameters.values() if each is not None]
    if len({parameter.device for parameter in parameters}) > 1:
        return "the model is on several devices"
    if len({parameter.dtype for parameter in parameters}) > 1:
        return "parameters are of different types"
    if on_device:
        return None
    if parameters[0].device.type != "cpu":
        return f"the model is on {parameters[0].device}"
    missing = unavailable(model.decoder.output_projection.weight.dtype)
    if missing is None and model.int8 and isinstance(model.decoder, LatentAlignmentDecoder):
        return "latent alignments are not computed in 8-bit integers"
    return missing


def _unusual(model: nn.Module) -> str | None:
    """What is unusual about the model as a whole."""
    if type(model) not in MODELS:
        return f"the model is a {type(model).__name__}"
    sides = model.encoder, model.decoder
    kinds = tuple(map(type, sides))
    if kinds not in MODELS[type(model)]:
        return "encoder and decoder are {} and {}".format(*(kind.__name__ for kind in kinds))
    if torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks:
        return "all modules have a hook"
    for side, kind in zip(sides, (AdaptivelySparseEncoderLayer, AdaptivelySparseDecoderLayer)):
        if {type(layer) for layer in side.layers} != {kind}:
            return "a layer is not the usual one"
        if len({layer.normalize_before for layer in side.layers}) > 1:
            return "some layers are pre-norm and others post-norm"
    return None


def _unusual_attention(model: nn.Module) -> str | None:
    """Which attention has a normalizer that is not registered, or was changed since."""
    for attention_type, layers in model.attentions().items():
        for layer in layers:
            normalizer = layer.normalizer
            kind = type(normalizer)
            sizes = attention_type, layer.num_heads, layer.embed_dim
            if not _is_registered(kind) or _names(normalizer) != _names_as_built(kind, *sizes):
                return f"the normalizer of {attention_type} attention is a {kind.__name__}"
    return None


def _unknown(module: nn.Module) -> str | None:
    """What is unknown in a module, not counting its parts."""
    kind = type(module)
    if kind not in NAMES and not _is_registered(kind):
        return f"there is a {kind.__name__}"
    if module.training:
        return f"a {kind.__name__} is in training mode"
    if module._forward_hooks or module._forward_pre_hooks:
        return f"a {kind.__name__} has a hook"
    if not _is_own(vars(module).get("forward"), kind):
        return f"a method of a {kind.__name__} was replaced"
    if kind not in NAMES:  # a normalizer, which has been compared
        return None
    if kind is nn.LayerNorm and (module.weight is None or module.bias is None):
        return "a LayerNorm lacks weight or bias"
    known, off = _expected(kind)
    for name in _names(module) - known:
        if not (isinstance(module, nn.ModuleList) and name.isdigit()):
            return f"a {kind.__name__} has {name}"
    for name in off:
        value = getattr(module, name)
        if not (value is None or (isinstance(value, (bool, int, float)) and value == 0)):
            return f"a {kind.__name__} has {name}"
    return None


def _is_registered(kind: type) -> bool:
    return NORMALIZERS.get(getattr(kind, "name", "")) is kind


def _names(module: nn.Module) -> set[str]:
    """The names of everything that is set in a module."""
    return {*vars(module), *module._parameters, *module._buffers, *module._modules}


@functools.cache
def _names_as_built(normalizer: type, attention_type: str, num_heads: int, channels: int) -> set[str]:
    return _names(normalizer.build(attention_type, num_heads, channels))


@functools.cache
def _expected(kind: type) -> tuple[set[str], list[str]]:
    """The names that a type may have, and of them those that have to be off."""
    off = [name for base, names in OFF.items() if issubclass(kind, base) for name in names.split()]
    return {*vars(nn.Module()), *NAMES[kind].split()}, off


def _functions(kind: type) -> list[FunctionType]:
    """The functions of a class and the classes that it extends, down to ``nn.Module``."""
    bases = (base for base in kind.__mro__ if base not in (nn.Module, object))
    return [value for base in bases for value in vars(base).values() if isinstance(value, FunctionType)]


_functions_at_first = functools.cache(_functions)
for _kind in (*NAMES, *NORMALIZERS.values()):
    _functions_at_first(_kind)


def _is_own(forward: object, kind: type) -> bool:
    """Whether a module's own ``forward``, if any, is that of its type with checkpointed activations."""
    if forward is None:
        return True
    checkpointed = isinstance(forward, partial) and forward.func is checkpoint
    return checkpointed and getattr(forward.args[0], "__func__", None) is kind.forward
