"""Steps of a search as CUDA graphs: what takes some three hundred launches takes one."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from ..errors import one_line
from ..graphs.recorder import Recorder, lacked_memory
from .device_state import Shape, State

MOST = 64  # captured graphs

logger = logging.getLogger(__name__)
Step = Callable[[State], None]


class Restart(Exception):
    """The batch must begin again: what a failed capture has changed is not known."""


class Graphs:
    """Runs the steps of a search; the first of a shape as it is, to be captured then, and others by replay.

    If a step cannot be captured, all run as they are from then on, with a warning. Steps of shapes for which
    memory does not suffice always do.

    Args:
        device: of the states; only a GPU captures, elsewhere a replay is a call.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._replays: dict[Shape, Callable[[], None]] = {}
        self._uncaptured: set[Shape] = set()
        self._captures = True
        self._recorder = Recorder(device)

    def clear(self) -> None:
        """Forget all graphs, which read memory that is no longer used."""
        self._replays.clear()
        self._recorder.forget()

    def run(self, state: State, step: Step, is_last: bool) -> None:
        """Compute the next position of a state.

        Args:
            state: which ``step`` changes.
            step: reads and writes what the state holds, and other tensors that stay where they are.
            is_last: the state has no position after this one.

        Raises:
            Restart: see there; it will not happen for the same reason again.
        """
        replay = self._replays.get(state.shape)
        if replay is not None:
            replay()
            return
        self._recorder.run(lambda: step(state))
        if self._captures and not is_last and state.shape not in self._uncaptured:
            self._capture(state, step)

    def _capture(self, state: State, step: Step) -> None:
        if len(self._replays) >= MOST:
            self._leave(state.shape, f"there are {MOST} of them")
            return
        try:
            self._replays[state.shape] = self._recorder.record(lambda: step(state))
            return
        except RuntimeError as error:
            self._recorder = Recorder(self._device)  # graphs stay right, as they draw no random numbers
            if lacked_memory(error):
                self._leave(state.shape, "the GPU's memory does not suffice")
            else:
                logger.warning(
                    "translation runs without CUDA graphs, which takes longer: %s", one_line(error)[:300]
                )
                self._captures = False
                self.clear()
        raise Restart

    def _leave(self, shape: Shape, reason: str) -> None:
        if not self._uncaptured:
            logger.warning("some steps of translation run without a CUDA graph: %s", reason)
        self._uncaptured.add(shape)
