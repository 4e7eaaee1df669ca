"""A callback of transformers' Trainer: the number of keys that a query attends to, as asked for."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..attention import Alpha
from ..attention.dial import Dial


class KeysPerQuery(TrainerCallback, ExportableState):
    """Moves the α's of a model that has gone through ``sparsify`` to ``target`` keys per query of each head.

    α's move whenever the Trainer logs, so ``logging_steps`` should be about 10. The mean loss of the first
    100 updates, in which α's stay near 1, counts as the dense model's. The constants are those of
    :class:`~user_dir.attention.dial.Dial`.

    Args:
        target: keys per query, above 1, mean over the queries of a head.
        max_loss: by what share of the dense model's loss the running loss may exceed it; beyond, α's fall.

    With ``restore_callback_states_from_checkpoint`` a resumed training goes on with its earlier losses.
    """

    def __init__(self, target: float = 2.0, max_loss: float = 0.01):
        self.target, self.max_loss = target, max_loss
        self.losses: tuple[float | None, float | None] = (None, None)  # running, dense
        self.dial: Dial | None = None

    def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Take the α's, before they are wrapped for several workers; raises ValueError as the dial does."""
        alphas = (module for module in model.modules() if isinstance(module, Alpha))
        self.dial = Dial(alphas, self.target, self.max_loss)
        self.dial.loss, self.dial.dense_loss = self.losses

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Count keys in an update that is followed by a log."""
        if self.dial is None:  # added later, or restored
            self.on_init_end(args, state, control, model)
        self.dial.prepare(state.global_step + 1, state.logging_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Move the α's."""
        if "loss" in logs:
            self.dial.observe(logs["loss"], state.global_step, state.logging_steps)
            self.losses = self.dial.loss, self.dial.dense_loss

    def state(self) -> dict:
        """What a checkpoint of the Trainer remembers."""
        arguments = {"target": self.target, "max_loss": self.max_loss}
        return {"args": arguments, "attributes": {"losses": self.losses}}
