"""What a backend of attention is: one implementation, for one type of device or for all."""

from __future__ import annotations

from typing import Optional, Tuple

from torch import Tensor

from .inputs import AttentionInputs


class Backend:
    """An implementation of attention; a new one is a subclass in its own file and a line in :mod:`.dispatch`.

    Attributes:
        name: a value of ``--attention-backend``; that of several, if they are for different devices.
        device: the type of device that it is for, such as ``cpu``; None for all.
    """

    name = ""
    device: Optional[str] = None

    def unavailable(self) -> Optional[str]:
        """Why it cannot be used in this process; None if it can."""
        return None

    def unsupported(self, inputs: AttentionInputs) -> Optional[str]:
        """Why it cannot compute these, :meth:`unavailable` or not; None if it can."""
        return self.unavailable()

    def is_slow(self, inputs: AttentionInputs) -> bool:
        """Whether a backend further down the table is faster for these, so that ``auto`` takes that."""
        return False

    def is_trusted(self, inputs: AttentionInputs) -> bool:
        """Whether ``auto`` may use it for these; it is asked last."""
        return True

    def compute(self, inputs: AttentionInputs) -> Tuple[Tensor, Optional[Tensor]]:
        """The results of :func:`.dispatch.attention`, which turns autocast off for tensors of one dtype."""
        raise NotImplementedError
