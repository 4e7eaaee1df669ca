"""Steps of a search as CUDA graphs: what takes some three hundred launches takes one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..errors import one_line
from ..graphs.recorder import Recorder, lacked_memory
from .device_state import Shape, State

MOST = 64  # captured graphs
# Largest error of a replayed step as a share of the largest entry: its products may add in another order.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
DIFFERENT = 0.01  # share of entries that may differ: of hypotheses that are equally good, either is right

logger = logging.getLogger(__name__)
Step = Callable[[State], None]


class Restart(Exception):
    """The batch must begin again: what a failed capture, or a wrong replay, has changed is not known."""


class Graphs:
    """Runs the steps of a search; the first of a shape as it is, to be captured then, and others by replay.

    The first replay of all is compared with the step itself, at another position than it was captured at. If
    they differ, or a step reads a value from the device, steps run as they are from then on, with a warning.
    Steps of shapes for which memory does not suffice always do.

    Args:
        device: of the states; only a GPU captures, elsewhere a replay is a call.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._replays: dict[Shape, Callable[[], None]] = {}
        self._uncaptured: set[Shape] = set()
        self._captures, self._trusted = True, device.type != "cuda"
        self._recorder = Recorder(device)

    def clear(self) -> None:
        """Forget all graphs, which read memory that is no longer used."""
        self._replays.clear()
        self._recorder.forget()

    def run(self, state: State, position: int, step: Step, is_last: bool) -> None:
        """Compute the next position of a state.

        Args:
            state: which ``step`` changes.
            position: the value of ``state.step``.
            step: reads and writes what the state holds, and other tensors that stay where they are.
            is_last: there is no position after this one.

        Raises:
            Restart: see there; it will not happen for the same reason again.
        """
        replay = self._replays.get(state.shape)
        if replay is None:
            self._recorder.run(lambda: step(state))
            # Before it trusts a step, a capture tries it once more, at the next position.
            is_last = is_last or position + 1 == state.shape.positions
            if self._captures and not is_last and state.shape not in self._uncaptured:
                self._capture(state, step)
        elif self._trusted:
            replay()
        else:
            self._compare(state, position, step, replay)

    def _capture(self, state: State, step: Step) -> None:
        if len(self._replays) >= MOST:
            self._leave(state.shape, f"there are {MOST} of them")
            return
        try:
            if not self._trusted:
                before = _copies(state.changing())
                with _without_reads():
                    step(state)
                _restore(state.changing(), before)
            self._replays[state.shape] = self._recorder.record(lambda: step(state))
            return
        except RuntimeError as error:
            self._recorder = Recorder(self._device)  # graphs stay right, as they draw no random numbers
            if lacked_memory(error):
                self._leave(state.shape, "the GPU's memory does not suffice")
            else:
                self._stop(f"a step cannot be captured ({one_line(error)[:300]})")
        raise Restart

    def _compare(self, state: State, position: int, step: Step, replay: Callable[[], None]) -> None:
        """Compute the next position in both ways."""
        changing, written = state.changing(), state.written(position)
        before = _copies(changing)
        step(state)
        expected = _copies([*changing, *written])
        _restore(changing, before)
        for tensor in written:
            tensor.zero_()
        replay()
        if any(map(_differ, [*changing, *written], expected)):
            self._stop("a replayed step does not do what the step does")
            raise Restart
        self._trusted = True

    def _leave(self, shape: Shape, reason: str) -> None:
        if not self._uncaptured:
            logger.warning("warning: some steps of translation run without a CUDA graph: %s", reason)
        self._uncaptured.add(shape)

    def _stop(self, reason: str) -> None:
        logger.warning("warning: translation runs without CUDA graphs, which takes longer: %s", reason)
        self._captures = False
        self.clear()


@contextmanager
def _without_reads() -> Iterator[None]:
    """On a GPU, raise RuntimeError where a value is read from it, before a failed capture could break it."""
    if not torch.cuda.is_available():
        yield
        return
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def _restore(tensors: list[Tensor], copies: list[Tensor]) -> None:
    for tensor, copy in zip(tensors, copies):
        tensor.copy_(copy)


def _differ(actual: Tensor, expected: Tensor) -> bool:
    """Whether too many entries do."""
    if actual.is_floating_point():
        most = expected.nan_to_num(0, 0, 0).abs().max().item()
        same = actual.isclose(expected, rtol=0, atol=TOLERANCE[actual.dtype] * most, equal_nan=True)
    else:
        same = actual == expected
    return (~same).double().mean().item() > DIFFERENT
