"""The α of a layer's attention heads: learned, fixed or scheduled."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from .normalizers import NORMALIZERS

MOST = 1000  # bound of all settings of α: far above useful values, small enough for float32


def described(default: Any, text: Optional[str]) -> Any:
    """A dataclass field for a setting, with its default and the help text of its flag."""
    return field(default=default, metadata={"help": text})


@dataclass
class AlphaConfig:
    """How the α's of one attention type are set; each field is described by its ``help``.

    Raises:
        ValueError: a value is out of range, or values contradict each other; the message names the fields.
    """

    attention_normalizer: str = described(
        "entmax",
        f"function that turns attention scores into weights: {', '.join(NORMALIZERS)}; "
        "entmax learns one α per head unless α is fixed or scheduled",
    )
    fixed_alpha: Optional[float] = described(
        None, "use entmax with this constant α (at least 1) in every head"
    )
    alpha_init: Optional[float] = described(
        None, "initial value of all learned α's, within the bounds, instead of a ~ N(mean, std)"
    )
    alpha_init_mean: float = described(0.0, "mean of the initial a of a learned α")
    alpha_init_std: float = described(1.0, "standard deviation of the initial a of a learned α")
    alpha_min: float = described(1.0, "lower bound of learned α's")
    alpha_max: float = described(2.0, "upper bound of learned α's")
    alpha_tying: str = described(
        "none",
        "heads that share one learned α: none, layer (the heads of a layer's attention), "
        "type (those of an attention type) or model (all)",
    )
    alpha_freeze_updates: int = described(
        0, "number of first updates without a gradient for α (weight decay still applies)"
    )
    alpha_schedule: str = described(
        "none", "move α from start to end over the first updates: none, linear or cosine"
    )
    alpha_schedule_start: float = described(1.0, "α at the start of the schedule")
    alpha_schedule_end: float = described(1.5, "α at the end of the schedule")
    alpha_schedule_updates: int = described(0, "length of the schedule in updates")
    alpha_schedule_then: str = described("fixed", "α after the schedule: fixed (keeps its value) or learned")
    alpha_lr_multiplier: float = described(
        1.0,
        "factor of α's learning rate under Adam and other optimizers whose steps do not depend "
        "on the scale of the gradient (it also scales the gradient that clipping sees); part of the "
        "model, like the bounds: keep it when training on from a checkpoint",
    )

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range, or values contradict each other."""
        for fault in self._faults():
            raise ValueError(fault)

    def _faults(self) -> Iterator[str]:
        choices = {
            "attention_normalizer": tuple(NORMALIZERS),
            "alpha_tying": ("none", "layer", "type", "model"),
            "alpha_schedule": ("none", "linear", "cosine"),
            "alpha_schedule_then": ("fixed", "learned"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                yield f"unknown {name} {getattr(self, name)!r}: choose from {', '.join(allowed)}"
        low, high = self.alpha_min, self.alpha_max
        if not 1 <= low < high <= MOST:
            yield f"bounds must satisfy 1 <= alpha_min < alpha_max <= {MOST}, not {low:g} and {high:g}"
        ranges = {
            "fixed_alpha": (1, MOST),
            "alpha_init_mean": (-MOST, MOST),
            "alpha_init_std": (0, MOST),
            "alpha_lr_multiplier": (1 / MOST, MOST),
            "alpha_freeze_updates": (0, math.inf),
            "alpha_schedule_start": (1, MOST),
            "alpha_schedule_end": (1, MOST),
            "alpha_schedule_updates": (int(self.scheduled), math.inf),
        }
        for name, (first, last) in ranges.items():
            value = getattr(self, name)
            if value is not None and not first <= value <= last:
                yield f"{name} must be from {first:g} to {last:g}, not {value:g}"
        ends_learned = self.scheduled and self.alpha_schedule_then == "learned"
        for name in ("alpha_init", "alpha_schedule_end") if ends_learned else ("alpha_init",):
            value = getattr(self, name)
            if value is not None and not low < value < high:
                yield f"{name} must lie between alpha_min {low:g} and alpha_max {high:g}, not {value:g}"
        if self.fixed_alpha is not None and NORMALIZERS[self.attention_normalizer].alpha is not None:
            yield f"fixed_alpha requires attention_normalizer entmax, not {self.attention_normalizer}"
        if self.scheduled and self.constant is not None:
            yield "alpha_schedule requires attention_normalizer entmax without fixed_alpha"
        if self.scheduled and self.alpha_init is not None:
            yield "alpha_init contradicts alpha_schedule, which starts from alpha_schedule_start"

    @property
    def constant(self) -> Optional[float]:
        """α if it is constant, else None."""
        if self.fixed_alpha is not None:
            return self.fixed_alpha
        return NORMALIZERS[self.attention_normalizer].alpha

    @property
    def scheduled(self) -> bool:
        """Whether α moves on a schedule."""
        return self.alpha_schedule != "none"

    @property
    def learned(self) -> bool:
        """Whether α has a trained parameter, now or after the schedule."""
        return self.constant is None and not (self.scheduled and self.alpha_schedule_then == "fixed")


class Alpha(nn.Module):
    """α of the H heads of one attention module, or of several modules that share it.

    A learned α is ``min + (max − min) · sigmoid(m·a)``, with the parameter a ~ N(mean, std)/m and the
    learning-rate multiplier m: optimizers whose steps do not depend on the gradient's scale thus move α m
    times as fast, while the model has a single learning rate. With the defaults this is α = 1 + sigmoid(a),
    as in Correia et al. 2019 (https://arxiv.org/abs/1909.00015), section 3.2.

    Args:
        num_heads: H.
        config: how α is set.
    """

    def __init__(self, num_heads: int, config: AlphaConfig):
        super().__init__()
        self.num_heads = num_heads
        self.constant = config.constant
        self.low = config.alpha_min
        self.high = config.alpha_max
        self.multiplier = config.alpha_lr_multiplier
        self.freeze_updates = config.alpha_freeze_updates
        self.schedule = config.alpha_schedule
        self.schedule_start = config.alpha_schedule_start
        self.schedule_end = config.alpha_schedule_end
        self.schedule_updates = config.alpha_schedule_updates if config.scheduled else 0
        # The number of updates made: fairseq sets it before each update, and when loading a checkpoint.
        self.updates = 0
        self.keys: Optional[list[Tensor]] = None  # keys per query in each forward pass, while a Dial counts
        a: Optional[nn.Parameter] = None
        if config.learned:
            a = nn.Parameter(self._initial_a(config))
            # the parameter's group in fairseq's composite optimizer
            a.param_group = "alpha"  # type: ignore[attr-defined]
        self.a = a

    def _initial_a(self, config: AlphaConfig) -> Tensor:
        size = self.num_heads if config.alpha_tying == "none" else 1
        start = config.alpha_schedule_end if config.scheduled else config.alpha_init
        if start is None:
            a = torch.empty(size).normal_(config.alpha_init_mean, config.alpha_init_std)
        else:
            share = torch.full((size,), (start - self.low) / (self.high - self.low), dtype=torch.float64)
            a = torch.logit(share).float()
        return a / self.multiplier

    def forward(self) -> Tensor:
        """α as a tensor that broadcasts over scores (B, H, T, S): (H, 1, 1), or (1, 1, 1) if tied.

        In float64 for a float64 parameter, else float32.
        """
        alpha = self.value()
        return alpha if isinstance(alpha, Tensor) else torch.full((1, 1, 1), alpha, dtype=torch.float32)

    def value(self) -> Union[float, Tensor]:
        """α as an argument of entmax: a number if it is not learned, else the tensor of forward."""
        if self.constant is not None:
            return self.constant
        a = self.a
        if a is None:
            return self.scheduled_alpha()
        # On a GPU every operation launches a kernel, so operations without effect are left out.
        logit = a if a.dtype == torch.float64 else a.float()
        if self.multiplier != 1.0:
            logit = self.multiplier * logit
        share = torch.sigmoid(logit)
        if self.low == 1.0 and self.high == 2.0:
            alpha = 1.0 + share
        else:  # rounding may exceed a bound
            alpha = (self.low + (self.high - self.low) * share).clamp(self.low, self.high)
        # 0.0 * alpha because in distributed training every parameter must get a gradient, even if it is 0.
        if self.updates < self.schedule_updates:
            alpha = self.scheduled_alpha() + 0.0 * alpha
        elif self.updates < self.freeze_updates:
            alpha = alpha.detach() + 0.0 * alpha
        return alpha.view(-1, 1, 1)

    def scheduled_alpha(self) -> float:
        """The scheduled α at the current update."""
        progress = min(1.0, self.updates / self.schedule_updates)
        if self.schedule == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        return self.schedule_start + progress * (self.schedule_end - self.schedule_start)

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of updates made; called by fairseq."""
        self.updates = num_updates

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Called by fairseq before loading: α keeps its initial value if the checkpoint has none."""
        for key, value in self.state_dict().items():
            state_dict.setdefault(f"{name}.{key}", value)
