"""Whether a CUDA graph could replay the forward, criterion and backward of a model's update."""

from __future__ import annotations

from collections.abc import Iterator

from fairseq.modules import AdaptiveInput, AdaptiveSoftmax, LayerDropModuleList
from torch import nn

from ..attention import Alpha
from ..modules import LatentAlignment, OutputNormalizer
from .masked_lm import AdaptivelySparseMaskedLM


def why_no_replay(model: nn.Module) -> str | None:
    """Why a graph of an update cannot be captured, or would be wrong in a later one; None if it can."""
    return next((reason for module in model.modules() for reason in _reasons(module)), None)


def _reasons(module: nn.Module) -> Iterator[str]:
    if isinstance(module, LayerDropModuleList) and module.p > 0:
        yield "layer drop draws on the host which layers run"
    if isinstance(module, (AdaptiveSoftmax, AdaptiveInput)):
        yield "adaptive input and softmax count the words of each band on the host"
    if isinstance(module, LatentAlignment) and not module.soft:
        yield "a latent alignment counts the positions of nonzero probability on the host"
    if isinstance(module, AdaptivelySparseMaskedLM):
        yield "a masked language model counts the masked words on the host"
    if isinstance(module, (Alpha, OutputNormalizer)):
        until = max(module.schedule_updates, getattr(module, "freeze_updates", 0))
        if module.updates < until:
            yield f"alpha is set on the host until update {until}"
