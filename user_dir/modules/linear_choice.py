"""Whether linear layers multiply by oneDNN or as PyTorch does.

The two differ in the last digits, so a training that is resumed must choose as before. On AMD's processors it
is oneDNN: of MKL's time, it takes half on a Zen 5 and 0.8 on a Zen 4. On others it is measured, once per
processor, number of threads and version of PyTorch, and kept in a file beside the compiled kernels, so that
all later processes on the machine and the workers of a distributed training choose alike. (Workers on unlike
machines may differ; their parameters stay equal, since all add up the same gradients.)
``ADAPTIVELY_SPARSE_LINEAR`` overrides both, and the log says what was chosen.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..cpp.build import cache_folder
from ..entmax.operators import constant_in_graphs
from ..errors import UserError

VARIABLE = "ADAPTIVELY_SPARSE_LINEAR"
ONEDNN, TORCH = "onednn", "torch"
# oneDNN must take at most this share of PyTorch's time: a tie leaves things as PyTorch has them.
LIMIT = 0.95
SHAPES = ((1024, 512, 512), (1024, 256, 1024))  # rows, inputs, outputs; a second in all
ROUNDS = 7

logger = logging.getLogger(__name__)


@constant_in_graphs
@functools.cache
def prefers_onednn() -> bool:
    """Whether to multiply by oneDNN, which must be available; raises UserError for an unknown override."""
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", ONEDNN, TORCH):
        raise UserError(f"{VARIABLE}={asked} is unknown: set it to {ONEDNN} or {TORCH}, or not at all")
    if asked or "AuthenticAMD" in processor():
        return asked != TORCH
    chosen, origin = recorded(cache_folder() / f"linear_{_machine()}")
    logger.info("linear layers multiply by %s, %s; %s overrides it", chosen, origin, VARIABLE)
    return chosen == ONEDNN


def processor() -> str:
    """What is known of the processor; its vendor and model on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in lines if line.startswith(("vendor_id", "model name", "CPU ")))


def recorded(path: Path) -> tuple[str, str]:
    """The choice in a file, and where it is from; measured and written there first if it has none.

    Of processes that measure at the same time, the first one's choice counts.
    """
    found = _read(path)
    if found is not None:
        return found, f"as {path} says"
    ratio = time_of_onednn()
    chosen = ONEDNN if ratio <= LIMIT else TORCH
    origin = f"since oneDNN takes {ratio:.2f} of PyTorch's time"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix="linear_") as file:
            file.write(chosen + "\n")
            file.flush()
            os.link(file.name, path)
    except FileExistsError:
        return _read(path) or chosen, f"as {path} says"
    except OSError as error:
        origin += f" (not kept for later processes, which measure again: {error})"
    return chosen, origin


def time_of_onednn() -> float:
    """The time of oneDNN as a share of PyTorch's, for the three products of a layer in training."""
    ratios = []
    with _disable_current_modes(), torch.no_grad():  # also while a compiler traces with fake tensors
        for rows, inputs, outputs in SHAPES:
            x = torch.full((rows, inputs), 0.5, dtype=torch.float32, device="cpu")
            weight = torch.full((outputs, inputs), 0.5, dtype=torch.float32, device="cpu")
            grad = torch.full((rows, outputs), 0.5, dtype=torch.float32, device="cpu")
            products = ((x, weight), (grad, weight.t()), (x.t(), grad.t()))
            times = [[_seconds(how, products) for how in (_by_onednn, F.linear)] for _ in range(ROUNDS + 1)]
            ratios.append(
                statistics.median(ours / theirs for ours, theirs in times[1:])
            )  # the first warms up
    return statistics.geometric_mean(ratios)


def _by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def _seconds(product, pairs: tuple[tuple[Tensor, Tensor], ...]) -> float:
    begin = time.process_time()  # of all threads, whatever else the machine is busy with
    for x, weight in pairs:
        product(x, weight)
    return time.process_time() - begin


def _read(path: Path) -> str | None:
    try:
        text = path.read_bytes()[:10].decode(errors="replace").strip()
    except OSError:
        return None
    return text if text in (ONEDNN, TORCH) else None


def _machine() -> str:
    """What a measurement holds for, in a few letters."""
    known = (processor(), torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability())
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
