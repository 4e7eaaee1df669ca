"""Triton's interpreter, as unforgiving as a GPU: of what it would do right by chance it makes an error."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import torch


class WrongOnAGpu(Exception):
    """What a kernel must not do, although the interpreter's results are right."""


class Watch:
    """Looks at the memory that kernels read and write, program by program.

    Errors are: addresses outside of the tensors; a mask without a value for what it hides; what another
    thread of the program may not have written, or read, yet; what another program writes.
    """

    def __init__(self):
        self.program = self.since = 0

    def launch(self, tensors):
        """Kernels may use the memory of these tensors only."""
        spans = []
        for begin, end in sorted(map(_span, tensors)):
            if spans and begin <= spans[-1][1]:
                spans[-1][1] = max(end, spans[-1][1])
            else:
                spans.append([begin, end])
        self.first, self.last = np.array(spans, np.int64).T
        self.begins = np.cumsum(np.append(0, self.last - self.first))
        # by byte: the time when it was last written and read, and the program that wrote it
        self.written, self.read, self.writer = (np.zeros(self.begins[-1], np.int64) for _ in range(3))
        self.now = self.program = 0
        self.begin()

    def begin(self):
        self.program += 1
        self.barrier()

    def barrier(self):
        self.now += 1

    def load(self, pointers, mask, other):
        if other is None and not mask.all():
            raise WrongOnAGpu("a load with a mask and no value for what it hides")
        places = self._places(pointers, mask)
        self._check(self.written[places] == self.now, "reads what another thread may not have written yet")
        self._check(~np.isin(self.writer[places], (0, self.program)), "reads what another program writes")
        self.read[places] = self.now

    def store(self, pointers, mask):
        places = self._places(pointers, mask)
        self._check(self.read[places] == self.now, "overwrites what another thread may not have read yet")
        self._check(
            ~np.isin(self.writer[places], (0, self.program)), "overwrites what another program writes"
        )
        self.written[places], self.writer[places] = self.now, self.program

    def _check(self, wrong, what):
        if wrong.any():
            raise WrongOnAGpu(f"a program {what}")

    def _places(self, pointers, mask):
        addresses = np.asarray(pointers)[np.asarray(mask, bool)].astype(np.int64)
        span = np.searchsorted(self.first, addresses, "right") - 1
        self._check((span < 0) | (addresses >= self.last[span]), "uses an address outside of the tensors")
        return addresses - self.first[span] + self.begins[span]


def _span(tensor):
    """Where its memory begins and ends."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    size = (last + 1) * tensor.element_size() if tensor.numel() else 0
    return tensor.data_ptr(), tensor.data_ptr() + size


@contextmanager
def strict(monkeypatch):
    """Watch all kernels that run from now on. New memory is NaN, and ``tl.maximum`` leaves NaN out."""
    from triton.runtime import interpreter

    builder, executor, watch = interpreter.InterpreterBuilder, interpreter.GridExecutor, Watch()
    init, load, store = executor._init_args_hst, builder.create_masked_load, builder.create_masked_store
    place = builder.set_grid_idx

    def init_args(self, *arguments):
        results = init(self, *arguments)
        values = [*results[0], *results[1].values()]
        watch.launch([value for value in values if isinstance(value, torch.Tensor)])
        return results

    def masked_load(self, pointers, mask, other, *options):
        watch.load(pointers.data, mask.data, other)
        return load(self, pointers, mask, other, *options)

    def masked_store(self, pointers, value, mask, *options):
        watch.store(pointers.data, mask.data)
        return store(self, pointers, value, mask, *options)

    def set_grid_idx(self, *index):
        watch.begin()
        place(self, *index)

    monkeypatch.setattr(executor, "_init_args_hst", init_args)
    monkeypatch.setattr(builder, "create_masked_load", masked_load)
    monkeypatch.setattr(builder, "create_masked_store", masked_store)
    monkeypatch.setattr(builder, "set_grid_idx", set_grid_idx)
    monkeypatch.setattr(builder, "create_barrier", lambda self: watch.barrier())
    for name, operator in (("create_maxnumf", np.fmax), ("create_minnumf", np.fmin)):
        monkeypatch.setattr(builder, name, lambda self, a, b, op=operator: self.binary_op(a, b, op))
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # otherwise new memory is not filled
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
