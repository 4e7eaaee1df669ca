"""Profiles of a training update of α-entmax, and of translation with fairseq's search and with ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch.profiler import record_function

from ..decoding import passes, search_loop
from ..tables import markdown
from .end_to_end import Runner, training_batches, translation_batches
from .measure import seconds
from .peer_systems import ALPHA_ENTMAX, Variant, Workshop

# The phases that fairseq's trainer marks.
PHASES = ("forward", "backward", "multiply-grads", "clip-grads", "optimizer")


def profile(workshop: Workshop, updates: int, top: int = 15) -> dict:
    """Profile ``updates`` updates of α-entmax, after as many warm-up updates.

    Returns:
        ``seconds``: per update, including the profiler. ``phases``: seconds per update in each of fairseq's
        phases, and in our autograd functions, which are parts of the first two. ``operations``: the ``top``
        operations by self time (on a GPU, of their kernels), with calls and seconds per update and their
        share of the total.
    """
    runner = Runner(ALPHA_ENTMAX, workshop.trainer(ALPHA_ENTMAX))
    batches = training_batches(runner.trainer, 2 * updates)
    runner.updates(batches[:updates])
    activities, device = [torch.profiler.ProfilerActivity.CPU], "cpu"
    if runner.trainer.cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        device = "device"
    with torch.profiler.profile(activities=activities) as profiler:
        total = runner.seconds(batches[updates:])
    averages = {average.key: average for average in profiler.key_averages()}

    def whole(name: str) -> float:
        if name not in averages:
            return 0.0
        return getattr(averages[name], f"{device}_time_total") / 1e6 / updates

    phases = {name: whole(name) for name in PHASES}
    for function in torch.autograd.Function.__subclasses__():
        name = function.__name__
        if function.__module__.startswith("user_dir.") and name in averages:
            place = f"{function.__module__}.{name}"
            phases[f"{place}, forward"], phases[f"{place}, backward"] = whole(name), whole(f"{name}Backward")

    return {
        "seconds": total / updates,
        "phases": phases,
        "operations": _operations(averages, device, updates, top),
    }


def profile_translation(
    workshop: Workshop, system: Variant, subset: str, sentences: int, top: int = 12
) -> dict:
    """Profile the translation of ``sentences`` sentences with beam 5 on a CPU.

    Returns:
        ``seconds``, including the profiler, and ``operations`` as :func:`profile`. The kernels of our search
        are operations, too: ``attend``, ``add_norm`` and ``best``.
    """
    runner = Runner(system, workshop.trainer(system))
    batches = translation_batches(workshop.task, subset, sentences)
    runner.translate(batches[:1], beam=5)
    with _marked_kernels(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        total = seconds(lambda: runner.translate(batches, beam=5))
    averages = {average.key: average for average in found.key_averages()}
    return {"seconds": total, "operations": _operations(averages, "cpu", 1, top)}


@contextmanager
def _marked_kernels() -> Iterator[None]:
    """While open, the profiler sees the kernels that are called past PyTorch."""

    def marked(name: str, function):
        def call(*args, **kwargs):
            with record_function(name):
                return function(*args, **kwargs)

        return call

    with ExitStack() as stack:
        for module, name in ((passes, "attend"), (passes, "add_norm"), (search_loop, "best")):
            patch = mock.patch.object(module, name, marked(name, getattr(module, name)))
            stack.enter_context(patch)
        yield


def _operations(averages: dict, device: str, updates: int, top: int) -> list[dict]:
    own = {
        name: getattr(average, f"self_{device}_time_total") / 1e6 / updates
        for name, average in averages.items()
        if name not in PHASES
    }
    everything = sum(own.values())
    return [
        {
            "operation": name,
            "calls": averages[name].count / updates,
            "seconds": own[name],
            "share": own[name] / everything,
        }
        for name in sorted(own, key=own.__getitem__, reverse=True)[:top]
    ]


def profile_tables(found: dict) -> str:
    """The result of :func:`profile` as Markdown: phases, then operations."""
    total = found["seconds"]
    phases = [
        [name, f"{1000 * seconds:.1f}", f"{100 * seconds / total:.0f} %"]
        for name, seconds in found["phases"].items()
    ]
    return (
        f"one update of α-entmax: {1000 * total:.0f} ms (with profiler)\n\n"
        + markdown(phases, ["phase", "ms", "share of the update"])
        + "\n\n"
        + operations_table(found)
    )


def operations_table(found: dict) -> str:
    """The operations of a profile as Markdown."""
    operations = [
        [
            each["operation"],
            f"{each['calls']:g}",
            f"{1000 * each['seconds']:.1f}",
            f"{100 * each['share']:.1f} %",
        ]
        for each in found["operations"]
    ]
    return markdown(operations, ["operation", "calls", "self ms", "share"])
