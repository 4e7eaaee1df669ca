"""Recording what a function does on the GPU, and doing it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Recorder:
    """Records functions without arguments; all recordings share their memory.

    What a function returns is overwritten by the next replay of any. On a CPU a recording is the function.
    """

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.pool = None if self.stream is None else torch.cuda.graph_pool_handle()

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function where it will be recorded: libraries and autograd remember the stream.

        A function must have been run before it is recorded, so that its kernels are compiled and loaded, and
        that constants, and the work space of libraries, do not lie in the memory of recordings.
        """
        if self.stream is None:
            return function()
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            result = function()
        current.wait_stream(self.stream)
        return result

    def record(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """A function that replays on the current stream what ``function`` would do, which is not done now.

        Raises:
            RuntimeError: what it does cannot be recorded, or there is too little memory. Drop all recordings
                then: torch has another generator of random numbers.
        """
        if self.stream is None:
            return function
        graph, random = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state()
        # In the default mode, a thread that copies batches to pinned memory would end the capture. The outer
        # context returns to the current stream even if the capture cannot be ended.
        mode = {"pool": self.pool, "stream": self.stream, "capture_error_mode": "thread_local"}
        try:
            with torch.cuda.stream(self.stream), torch.cuda.graph(graph, **mode):
                result = function()
        except BaseException:
            self._end_failed_capture(random)
            raise

        def replay() -> Any:
            graph.replay()
            return result

        return replay

    def _end_failed_capture(self, random: Tensor) -> None:
        """Let torch draw and free again: it stays in the middle of a capture that could not be ended."""
        device = torch.cuda.current_device()
        torch.cuda.default_generators[device].graphsafe_set_state(torch.Generator(f"cuda:{device}"))
        torch.cuda.set_rng_state(random)
        with contextlib.suppress(RuntimeError):  # of a capture that could be ended
            torch._C._cuda_endAllocateToPool(device, self.pool)

    def read_later(self, value: Tensor) -> Callable[[], float]:
        """A function that returns a number of the device, without waiting for what the device does now."""
        copy = value.to("cpu", non_blocking=True)
        if self.stream is None:
            return copy.item
        copied = torch.cuda.Event()
        copied.record()

        def read() -> float:
            copied.synchronize()
            return float(copy.item())

        return read
