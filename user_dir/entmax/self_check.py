"""Compares GPU kernels with plain torch, because on a new GPU or compiler their results may be wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

ALPHAS = (1.0, 1.25, 1.5, 2.0)  # each branch of the kernels, and both ends of the usual range
# The largest error as a share of the largest entry.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
# A kernel and the same in plain torch, both functions to several tensors; and their inputs, on the CPU.
Problems = Iterator[tuple[Callable, Callable, list[Tensor]]]
logger = logging.getLogger(__name__)
_verdicts: dict[tuple, bool] = {}


def passes(name: str, problems: Callable[..., Problems], device: torch.device, *kind: Any) -> bool | None:
    """Whether a kernel computes what plain torch does, checked once per process for each kind of call.

    ``kind`` is the dtype, and what else the problems depend on. None if this is unchecked while a CUDA graph
    is captured. The check runs in a new thread, with autograd, autocast and hooks in their initial states.
    """
    key = (name, device, *kind)
    if key not in _verdicts:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return None
        with ThreadPoolExecutor(1, "self-check") as thread:
            fault = thread.submit(_fault, problems, device, *kind).result()
        _verdicts[key] = not fault
        if fault:
            logger.warning("%s fails its self-check: %s; this process uses plain torch", key, fault)
    return _verdicts[key]


def _fault(problems: Callable, device: torch.device, dtype: torch.dtype, *kind: Any) -> str:
    try:
        for kernel, plain, inputs in problems(torch.Generator().manual_seed(1), dtype, *kind):
            inputs = [tensor.to(dtype) for tensor in inputs]
            _results(kernel, inputs, device, dtype)  # the first launch takes another path than later ones
            results = _results(kernel, inputs, device, dtype), _results(plain, inputs, "cpu", torch.float64)
            for number, (actual, exact) in enumerate(zip(*results)):
                error = float((actual.cpu() - exact).abs().max() / exact.abs().max())
                if not error <= (1e-2 if "high" in kind else TOLERANCE[dtype]):
                    return f"result {number} of {[tuple(x.shape) for x in inputs]} is off by {error:.2g}"
    except BaseException as error:  # a compiler raises anything
        return f"it raised {type(error).__name__}: {error}"
    return ""


def _results(function: Callable, inputs: list[Tensor], device: Any, dtype: torch.dtype) -> list[Tensor]:
    leaves = [tensor.to(device, dtype).requires_grad_() for tensor in inputs]
    output, *others = function(*leaves)
    grad = torch.arange(output.numel()).cos().view(output.shape).to(inputs[0].dtype).to(output)
    grads = torch.autograd.grad(output, leaves, grad) if output.requires_grad else ()
    return [tensor.detach() for tensor in (output, *others, *grads)]
