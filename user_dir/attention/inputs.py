"""The inputs of attention, their checks, and the base class of its implementations."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..entmax.checks import check_causal, check_masks, check_number


class AttentionInputs(NamedTuple):
    """Arguments of :func:`.dispatch.attention`."""

    query: Tensor  # (B, H, T, D)
    key: Tensor  # (B, H, S, D)
    value: Tensor  # (B, H, S, D)
    alpha: float | Tensor  # a number, or (H, 1, 1), or (1, 1, 1)
    key_padding_mask: Tensor | None = None  # (B, S)
    attn_mask: Tensor | None = None  # (T, S), or what broadcasts to (B, H, T, S)
    causal: bool = False
    dropout: float = 0.0
    need_weights: bool = False


class KernelInputs(NamedTuple):
    """Inputs of a fused kernel; the fields also define the schema of its operators."""

    query: Tensor
    key: Tensor
    value: Tensor
    alpha: Tensor  # a single number, or (H, 1, 1)
    key_padding_mask: Tensor | None  # (B, S), boolean
    attn_mask: Tensor | None  # (T, S), added to the scores
    causal: bool
    dropout: float
    seed: Tensor | None  # of dropout, a single number; None without dropout


def check_inputs(inputs: AttentionInputs) -> None:
    """Raise ValueError, naming what is wrong, unless arguments fit; an attn_mask may broadcast."""
    query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, _ = inputs
    shapes = [tuple(tensor.shape) for tensor in (query, key, value)]
    fits = query.dim() == key.dim() == value.dim() == 4 and value.shape[:3] == key.shape[:3]
    if not fits or key.shape[:2] != query.shape[:2] or key.size(3) != query.size(3):
        raise ValueError(
            f"queries, keys and values must be (B, H, T, D) and (B, H, S, D) twice, not {shapes}"
        )
    batch, heads, queries, _ = query.shape
    keys = key.size(2)
    check_causal(causal, queries, keys)
    check_masks(key_padding_mask, attn_mask, (batch, heads, queries, keys))
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability from 0 to 1, not {dropout}")
    if not isinstance(alpha, Tensor):
        check_number(alpha)


class Backend:
    """An implementation of attention; a new one is a subclass in its own file and a line in :mod:`.dispatch`.

    Attributes:
        name: a value of ``--attention-backend``; backends for different devices may share it.
        device: the type of device that it is for, such as ``cpu``; None for all.
    """

    name = ""
    device: str | None = None

    def unavailable(self) -> str | None:
        """Why it cannot be used in this process; None if it can."""
        return None

    def unsupported(self, inputs: AttentionInputs) -> str | None:
        """Why it is :meth:`unavailable` or cannot take these inputs; None if it can."""
        return self.unavailable()

    def is_preferred(self, inputs: AttentionInputs) -> bool:
        """Whether ``auto`` uses it for these inputs rather than a backend further down the table."""
        return self.unsupported(inputs) is None

    def compute(self, inputs: AttentionInputs) -> tuple[Tensor, Tensor | None]:
        """The results of :func:`.dispatch.attention`, which turns autocast off for tensors of one dtype."""
        raise NotImplementedError
