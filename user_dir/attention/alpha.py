"""The shape α of the attention heads of a layer: learned, fixed or on a schedule."""

import math
from dataclasses import dataclass, field, fields
from typing import Optional, Union

import torch
from torch import Tensor, nn

from ..errors import UserError
from .normalizers import NORMALIZERS

GREATEST = 1000  # of what is asked for α; far beyond what is of use, and far from the bounds of float32


@dataclass
class AlphaConfig:
    """How the α's of one attention type are made. Each field is a flag of the model, by the same name."""

    attention_normalizer: str = field(
        default="entmax",
        metadata={
            "help": "what turns attention scores into weights: " + ", ".join(NORMALIZERS) + "; "
            "entmax learns one α per head unless --fixed-alpha is given"
        },
    )
    fixed_alpha: Optional[float] = field(
        default=None, metadata={"help": "entmax with this α (at least 1) in every head, not learned"}
    )
    alpha_init: Optional[float] = field(
        default=None,
        metadata={"help": "learned α's all start here, instead of from a ~ N(mean, std); within the bounds"},
    )
    alpha_init_mean: float = field(
        default=0.0, metadata={"help": "mean of the a that a learned α starts from"}
    )
    alpha_init_std: float = field(default=1.0, metadata={"help": "its standard deviation"})
    alpha_min: float = field(default=1.0, metadata={"help": "lower bound of learned α's"})
    alpha_max: float = field(default=2.0, metadata={"help": "upper bound of learned α's"})
    alpha_tying: str = field(
        default="none",
        metadata={
            "help": "which heads share one learned α: none; those of a layer's attention (layer); "
            "those of an attention type (type); all of the model (model)"
        },
    )
    alpha_freeze_updates: int = field(
        default=0,
        metadata={"help": "learned α's get no gradient for this many updates (weight decay reaches them)"},
    )
    alpha_schedule: str = field(
        default="none",
        metadata={"help": "α moves from start to end over the first updates: none, linear, cosine"},
    )
    alpha_schedule_start: float = field(default=1.0, metadata={"help": "α of the schedule at update 0"})
    alpha_schedule_end: float = field(default=1.5, metadata={"help": "α at the end of the schedule"})
    alpha_schedule_updates: int = field(default=0, metadata={"help": "length of the schedule in updates"})
    alpha_schedule_then: str = field(
        default="fixed", metadata={"help": "what α does after the schedule: fixed (stays), learned"}
    )
    alpha_lr_multiplier: float = field(
        default=1.0,
        metadata={
            "help": "multiplies α's learning rate under Adam and other optimizers that do not feel the scale "
            "of a gradient (and that scale itself, which --clip-norm sees); part of the model, like the "
            "bounds: keep it when going on from a checkpoint"
        },
    )

    def __post_init__(self):
        """Check each value and how they go together; raises UserError."""
        for entry in fields(AlphaConfig):
            self._check_type(entry.name, entry.default)
        self._check_choice("attention_normalizer", tuple(NORMALIZERS))
        self._check_choice("alpha_tying", ("none", "layer", "type", "model"))
        self._check_choice("alpha_schedule", ("none", "linear", "cosine"))
        self._check_choice("alpha_schedule_then", ("fixed", "learned"))
        if not 1 <= self.alpha_min < self.alpha_max <= GREATEST:
            raise UserError(
                f"the bounds of α must satisfy 1 <= --alpha-min < --alpha-max <= {GREATEST}, "
                f"not {self.alpha_min:g} and {self.alpha_max:g}"
            )
        if self.fixed_alpha is not None:
            if self.attention_normalizer != "entmax":
                raise UserError(
                    f"--fixed-alpha {self.fixed_alpha:g} goes with --attention-normalizer entmax, "
                    f"not {self.attention_normalizer}"
                )
            self._check_alpha("fixed_alpha")
        if self.alpha_init is not None:
            self._check_inside("alpha_init")
        if not abs(self.alpha_init_mean) <= GREATEST:
            raise UserError(
                f"--alpha-init-mean must be from -{GREATEST} to {GREATEST}, not {self.alpha_init_mean:g}"
            )
        if not 0 <= self.alpha_init_std <= GREATEST:
            raise UserError(f"--alpha-init-std must be from 0 to {GREATEST}, not {self.alpha_init_std:g}")
        if not 1 / GREATEST <= self.alpha_lr_multiplier <= GREATEST:
            raise UserError(
                f"--alpha-lr-multiplier must be from {1 / GREATEST:g} to {GREATEST}, not "
                f"{self.alpha_lr_multiplier:g}; to keep α as it is, give --fixed-alpha"
            )
        if self.alpha_freeze_updates < 0:
            raise UserError(f"--alpha-freeze-updates must not be negative: {self.alpha_freeze_updates}")
        if self.scheduled:
            self._check_schedule()

    @property
    def constant(self) -> Optional[float]:
        """The α of a head that neither learns nor moves; None for every other."""
        if self.fixed_alpha is not None:
            return self.fixed_alpha
        return NORMALIZERS[self.attention_normalizer]

    @property
    def scheduled(self) -> bool:
        """Whether α moves on a schedule."""
        return self.alpha_schedule != "none"

    @property
    def learned(self) -> bool:
        """Whether α has a parameter that the optimizer moves, now or after the schedule."""
        return self.constant is None and not (self.scheduled and self.alpha_schedule_then == "fixed")

    def _check_type(self, name: str, default: object) -> None:
        """Values from a YAML file come unchecked; a field without a default is an optional number."""
        value = getattr(self, name)
        if isinstance(default, str):
            fits, kind = isinstance(value, str), "a word"
        elif isinstance(default, int):
            fits, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
        else:
            fits = value is default or (isinstance(value, (int, float)) and not isinstance(value, bool))
            kind = "a number"
        if not fits:
            raise UserError(f"{_flag(name)} must be {kind}, not {value!r}")

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise UserError(f"unknown {_flag(name)} {value!r}: choose from {', '.join(choices)}")

    def _check_alpha(self, name: str) -> None:
        value = getattr(self, name)
        if not 1 <= value <= GREATEST:
            raise UserError(f"{_flag(name)} must be from 1 to {GREATEST}, not {value:g}")

    def _check_inside(self, name: str) -> None:
        value = getattr(self, name)
        if not self.alpha_min < value < self.alpha_max:
            raise UserError(
                f"{_flag(name)} {value:g} must lie strictly between the bounds of a learned α, "
                f"--alpha-min {self.alpha_min:g} and --alpha-max {self.alpha_max:g}; "
                "a bound itself can only be had with --fixed-alpha"
            )

    def _check_schedule(self) -> None:
        if self.constant is not None:
            raise UserError(
                f"--alpha-schedule {self.alpha_schedule} needs an α that can move: "
                "--attention-normalizer entmax without --fixed-alpha"
            )
        if self.alpha_init is not None:
            raise UserError(
                f"--alpha-init {self.alpha_init:g} does not go with --alpha-schedule {self.alpha_schedule}: "
                "α starts from --alpha-schedule-start"
            )
        if self.alpha_schedule_updates <= 0:
            raise UserError(
                f"--alpha-schedule {self.alpha_schedule} needs --alpha-schedule-updates, its length in "
                f"updates, to be positive, not {self.alpha_schedule_updates}"
            )
        self._check_alpha("alpha_schedule_start")
        self._check_alpha("alpha_schedule_end")
        if self.alpha_schedule_then == "learned":
            self._check_inside("alpha_schedule_end")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class Alpha(nn.Module):
    """α of the H heads of one attention (of several, where α is tied).

    A learned α is ``min + (max − min) · sigmoid(m·a)``, with the parameter a ~ N(mean, std)/m and m the
    learning-rate multiplier: an optimizer whose steps do not depend on the scale of the gradient thus moves
    α m times as fast, with one learning rate for the whole model. At the defaults this is
    α = 1 + sigmoid(a) of Correia et al. 2019, section 3.2.
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
        # fairseq tells it before each update, and when it loads a checkpoint, be it to train or to translate.
        self.updates = 0
        if config.learned:
            self.a = nn.Parameter(self._initial_a(config))
            self.a.param_group = "alpha"  # the group it forms under fairseq's composite optimizer
        else:
            self.a = None

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
        """α as a tensor that broadcasts over scores (B, H, T, S): (H, 1, 1), or (1, 1, 1) where tied."""
        if self.constant is not None:
            return torch.full((1, 1, 1), self.constant, dtype=torch.float32)
        a = self.a
        if a is None:
            return torch.full((1, 1, 1), self.scheduled_alpha(), dtype=torch.float32)
        alpha = self.low + (self.high - self.low) * torch.sigmoid(self.multiplier * a.float())
        alpha = alpha.clamp(self.low, self.high)  # by rounding, a sum may lie beyond its bound
        # Not a bare detach: several workers expect a gradient, if only of 0, for every parameter.
        if self.updates < self.schedule_updates:
            alpha = self.scheduled_alpha() + 0.0 * alpha
        elif self.updates < self.freeze_updates:
            alpha = alpha.detach() + 0.0 * alpha
        return alpha.view(-1, 1, 1)

    def value(self) -> Union[float, Tensor]:
        """α as entmax takes it: a number where all heads have the same given one, else what forward gives."""
        if self.constant is not None:
            return self.constant
        return self.scheduled_alpha() if self.a is None else self()

    def scheduled_alpha(self) -> float:
        """α of the schedule at the present update."""
        progress = min(1.0, self.updates / self.schedule_updates)
        if self.schedule == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        return self.schedule_start + progress * (self.schedule_end - self.schedule_start)

    def set_num_updates(self, num_updates: int) -> None:
        """Told by fairseq how many updates were made."""
        self.updates = num_updates

    def upgrade_state_dict_named(self, state_dict, name: str) -> None:
        """Called by fairseq before loading: a checkpoint of the stock model leaves α as it was built."""
        for key, value in self.state_dict().items():
            state_dict.setdefault(f"{name}.{key}", value)

    def extra_repr(self) -> str:
        """What α is, for print(model)."""
        if self.constant is not None:
            return f"{self.num_heads} heads, alpha={self.constant:g}"
        kind = "learned" if self.a is not None else "scheduled"
        return f"{self.num_heads} heads, {kind} in [{self.low:g}, {self.high:g}]"
