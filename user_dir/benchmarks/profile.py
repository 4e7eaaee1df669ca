"""Profiles of a training update of α-entmax, and of translation with fairseq's search and with ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch.profiler import record_function

from ..decoding import attentions, parts, search_loop
from ..decoding.native import Engine
from ..tables import markdown
from .end_to_end import Runner, training_batches, translation_batches
from .measure import seconds
from .peer_systems import ALPHA_ENTMAX, Variant, Workshop
from .processes import PACKAGE

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
    total, averages = _profiled(lambda: runner.seconds(batches[updates:]), runner.trainer.cuda)
    device = "device" if runner.trainer.cuda else "cpu"

    def whole(name: str) -> float:
        return getattr(averages[name], f"{device}_time_total") / 1e6 / updates if name in averages else 0.0

    phases = {name: whole(name) for name in PHASES}
    for function in torch.autograd.Function.__subclasses__():
        name = function.__name__
        if function.__module__.startswith(f"{PACKAGE}.") and name in averages:
            place = f"{function.__module__}.{name}"
            phases[f"{place}, forward"], phases[f"{place}, backward"] = whole(name), whole(f"{name}Backward")
    operations = _operations(averages, device, updates, top)
    return {"seconds": total / updates, "phases": phases, "operations": operations}


def profile_translation(
    workshop: Workshop, system: Variant, subset: str, sentences: int, top: int = 12
) -> dict:
    """Profile the translation of ``sentences`` sentences with beam 5 on a CPU.

    Returns:
        ``seconds``, including the profiler, and ``operations`` as :func:`profile`. Our search in C++ is one,
        ``search``; where Python goes through the layers, so are ``attend``, ``add_norm`` and ``best``.
    """
    runner = Runner(system, workshop.trainer(system))
    batches = translation_batches(workshop.task, subset, sentences)
    runner.translate(batches[:1], beam=5)
    with _marked_kernels():
        total, averages = _profiled(lambda: seconds(lambda: runner.translate(batches, beam=5)))
    return {"seconds": total, "operations": _operations(averages, "cpu", 1, top)}


def _profiled(timed: Callable[[], float], gpu: bool = False) -> tuple[float, dict]:
    """The seconds that a call takes with the profiler, and its averages by operation."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, *([kinds.CUDA] if gpu else [])]) as profiler:
        total = timed()
    return total, {average.key: average for average in profiler.key_averages()}


@contextmanager
def _marked_kernels() -> Iterator[None]:
    """While open, the profiler sees the kernels that are called past PyTorch."""

    def marked(name: str, function):
        def call(*args, **kwargs):
            with record_function(name):
                return function(*args, **kwargs)

        return call

    with ExitStack() as stack:
        places = (Engine, "search"), (attentions, "attend"), (parts, "add_norm"), (search_loop, "best")
        for place, name in places:
            patch = mock.patch.object(place, name, marked(name, getattr(place, name)))
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
            "seconds": time,
            "share": time / everything,
        }
        for name, time in sorted(own.items(), key=lambda each: each[1], reverse=True)[:top]
    ]


def profile_tables(found: dict) -> str:
    """The result of :func:`profile` as Markdown: phases, then operations."""
    total = found["seconds"]
    phases = [
        [name, f"{1000 * seconds:.1f}", f"{100 * seconds / total:.0f} %"]
        for name, seconds in found["phases"].items()
    ]
    title = f"one update of α-entmax: {1000 * total:.0f} ms (with profiler)"
    shown = markdown(phases, ["phase", "ms", "share of the update"])
    return f"{title}\n\n{shown}\n\n{operations_table(found)}"


def operations_table(found: dict) -> str:
    """The operations of a profile as Markdown."""
    rows = []
    for each in found["operations"]:
        share = f"{100 * each['share']:.1f} %"
        rows.append([each["operation"], f"{each['calls']:g}", f"{1000 * each['seconds']:.1f}", share])
    return markdown(rows, ["operation", "calls", "self ms", "share"])
