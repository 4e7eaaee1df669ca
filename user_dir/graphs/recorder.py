"""Recording what a function does on the GPU, and doing it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Recorder:
    """Records functions without arguments; all recordings share their memory.

    The next replay of any recording overwrites a function's result. On a CPU a recording is the function.
    """

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.pool = None if self.stream is None else torch.cuda.graph_pool_handle()

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function on the stream that will record it, because libraries and autograd remember streams.

        A function must have been run before it is recorded, so that its kernels are compiled and loaded, and
        constants and the work space of libraries are not allocated in the memory of recordings.
        """
        if self.stream is None:
            return function()
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            result = function()
        current.wait_stream(self.stream)
        return result

    def record(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Record ``function`` without executing it; returns a function that replays it on the current stream.

        Raises:
            RuntimeError: ``function`` cannot be recorded, or memory ran out. Neither this recorder nor its
                recordings can be used then.
        """
        if self.stream is None:
            return function
        graph, random = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state(self.stream.device)
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        try:
            # Not torch.cuda.graph, which empties the allocator's cache each time.
            with torch.cuda.stream(self.stream):
                # In the default mode, a thread that copies batches to pinned memory would end the capture.
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    result = function()
                finally:
                    graph.capture_end()
        except BaseException:
            self._end_failed_capture(random)
            raise

        def replay() -> Any:
            graph.replay()
            return result

        return replay

    def _end_failed_capture(self, random: Tensor) -> None:
        """Let torch draw random numbers and free memory again after a capture that could not be ended."""
        device = self.stream.device.index
        torch.cuda.default_generators[device].graphsafe_set_state(torch.Generator(f"cuda:{device}"))
        torch.cuda.set_rng_state(random, device)
        with contextlib.suppress(RuntimeError):  # raised if the capture could be ended
            torch._C._cuda_endAllocateToPool(device, self.pool)
