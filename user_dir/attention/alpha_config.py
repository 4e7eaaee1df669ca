"""How the α of attention heads are set, and which settings make sense."""

from dataclasses import dataclass, field, fields
from typing import Optional

from .normalizers import NORMALIZERS

MAX_SETTING = 1000  # of any setting of α: far more than is useful, and small enough for float32


@dataclass
class AlphaConfig:
    """How the α's of one attention type are set; each field is described by its ``help``.

    Raises:
        ValueError: a value is out of range or of the wrong type, or values contradict each other. The message
            names the fields.
    """

    attention_normalizer: str = field(
        default="entmax",
        metadata={
            "help": "function that turns attention scores into weights: " + ", ".join(NORMALIZERS) + "; "
            "entmax learns one α per head unless α is fixed or scheduled"
        },
    )
    fixed_alpha: Optional[float] = field(
        default=None, metadata={"help": "use entmax with this constant α (at least 1) in every head"}
    )
    alpha_init: Optional[float] = field(
        default=None,
        metadata={"help": "initial value of all learned α's, within the bounds, instead of a ~ N(mean, std)"},
    )
    alpha_init_mean: float = field(default=0.0, metadata={"help": "mean of the initial a of a learned α"})
    alpha_init_std: float = field(
        default=1.0, metadata={"help": "standard deviation of the initial a of a learned α"}
    )
    alpha_min: float = field(default=1.0, metadata={"help": "lower bound of learned α's"})
    alpha_max: float = field(default=2.0, metadata={"help": "upper bound of learned α's"})
    alpha_tying: str = field(
        default="none",
        metadata={
            "help": "heads that share one learned α: none, layer (the heads of a layer's attention), "
            "type (those of an attention type) or model (all)"
        },
    )
    alpha_freeze_updates: int = field(
        default=0,
        metadata={"help": "number of first updates without a gradient for α (weight decay still applies)"},
    )
    alpha_schedule: str = field(
        default="none",
        metadata={"help": "move α from start to end over the first updates: none, linear or cosine"},
    )
    alpha_schedule_start: float = field(default=1.0, metadata={"help": "α at the start of the schedule"})
    alpha_schedule_end: float = field(default=1.5, metadata={"help": "α at the end of the schedule"})
    alpha_schedule_updates: int = field(default=0, metadata={"help": "length of the schedule in updates"})
    alpha_schedule_then: str = field(
        default="fixed", metadata={"help": "α after the schedule: fixed (keeps its value) or learned"}
    )
    alpha_lr_multiplier: float = field(
        default=1.0,
        metadata={
            "help": "factor of α's learning rate under Adam and other optimizers whose steps do not depend "
            "on the scale of the gradient (it also scales the gradient that clipping sees); part of the "
            "model, like the bounds: keep it when training on from a checkpoint"
        },
    )

    def __post_init__(self) -> None:
        """Validate the values and their combinations; raises ValueError."""
        for entry in fields(AlphaConfig):
            self._check_type(entry.name, entry.default)
        self._check_choice("attention_normalizer", tuple(NORMALIZERS))
        self._check_choice("alpha_tying", ("none", "layer", "type", "model"))
        self._check_choice("alpha_schedule", ("none", "linear", "cosine"))
        self._check_choice("alpha_schedule_then", ("fixed", "learned"))
        if not 1 <= self.alpha_min < self.alpha_max <= MAX_SETTING:
            raise ValueError(
                f"the bounds of α must satisfy 1 <= alpha_min < alpha_max <= {MAX_SETTING}, "
                f"not {self.alpha_min:g} and {self.alpha_max:g}"
            )
        if self.fixed_alpha is not None:
            if NORMALIZERS[self.attention_normalizer].alpha is not None:
                raise ValueError(
                    f"fixed_alpha {self.fixed_alpha:g} requires attention_normalizer entmax, "
                    f"not {self.attention_normalizer}"
                )
            self._check_alpha("fixed_alpha")
        if self.alpha_init is not None:
            self._check_inside("alpha_init")
        if not abs(self.alpha_init_mean) <= MAX_SETTING:
            raise ValueError(
                f"alpha_init_mean must be from -{MAX_SETTING} to {MAX_SETTING}, not {self.alpha_init_mean:g}"
            )
        if not 0 <= self.alpha_init_std <= MAX_SETTING:
            raise ValueError(f"alpha_init_std must be from 0 to {MAX_SETTING}, not {self.alpha_init_std:g}")
        if not 1 / MAX_SETTING <= self.alpha_lr_multiplier <= MAX_SETTING:
            raise ValueError(
                f"alpha_lr_multiplier must be from {1 / MAX_SETTING:g} to {MAX_SETTING}, not "
                f"{self.alpha_lr_multiplier:g}; for a constant α, use fixed_alpha"
            )
        if self.alpha_freeze_updates < 0:
            raise ValueError(f"alpha_freeze_updates must not be negative: {self.alpha_freeze_updates}")
        if self.scheduled:
            self._check_schedule()

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

    def _check_type(self, name: str, default: object) -> None:
        """Values from YAML are not type-checked; a field whose default is None is an optional number."""
        value = getattr(self, name)
        if isinstance(default, str):
            fits, kind = isinstance(value, str), "a string"
        elif isinstance(default, int):
            fits, kind = isinstance(value, int) and not isinstance(value, bool), "an integer"
        else:
            fits = value is default or (isinstance(value, (int, float)) and not isinstance(value, bool))
            kind = "a number"
        if not fits:
            raise ValueError(f"{name} must be {kind}, not {value!r}")

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(f"unknown {name} {value!r}: choose from {', '.join(choices)}")

    def _check_alpha(self, name: str) -> None:
        value = getattr(self, name)
        if not 1 <= value <= MAX_SETTING:
            raise ValueError(f"{name} must be from 1 to {MAX_SETTING}, not {value:g}")

    def _check_inside(self, name: str) -> None:
        value = getattr(self, name)
        if not self.alpha_min < value < self.alpha_max:
            raise ValueError(
                f"{name} {value:g} must lie strictly between the bounds of a learned α, "
                f"alpha_min {self.alpha_min:g} and alpha_max {self.alpha_max:g}; "
                "for a constant α at a bound, use fixed_alpha"
            )

    def _check_schedule(self) -> None:
        if self.constant is not None:
            raise ValueError(
                f"alpha_schedule {self.alpha_schedule} requires attention_normalizer entmax "
                "without fixed_alpha"
            )
        if self.alpha_init is not None:
            raise ValueError(
                f"alpha_init {self.alpha_init:g} cannot be combined with alpha_schedule "
                f"{self.alpha_schedule}: α starts from alpha_schedule_start"
            )
        if self.alpha_schedule_updates <= 0:
            raise ValueError(
                f"alpha_schedule {self.alpha_schedule} requires a positive alpha_schedule_updates (its "
                f"length in updates), not {self.alpha_schedule_updates}"
            )
        self._check_alpha("alpha_schedule_start")
        self._check_alpha("alpha_schedule_end")
        if self.alpha_schedule_then == "learned":
            self._check_inside("alpha_schedule_end")
