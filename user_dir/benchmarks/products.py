"""Time of products with a layer's weights on the CPU: ours of translation against those of PyTorch."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..decoding.products import Int8Product, Product
from ..modules.linear import has_onednn
from ..tables import Column, table
from .measure import quartiles, ratio, time_calls

# Inputs and outputs of layers of the sizes tiny, small and iwslt, and of a vocabulary.
SHAPES = ((128, 384), (256, 1024), (512, 512), (512, 1024), (512, 8000))
ROWS = (1, 2, 5, 16, 64, 320)
OURS, ONEDNN, TORCH, OURS_INT8, TORCH_INT8 = "ours", "oneDNN", "torch", "int8", "torch's int8"
PEERS = {ONEDNN: OURS, TORCH: OURS, TORCH_INT8: OURS_INT8, OURS: OURS_INT8}  # and what is compared with it


def product_contenders(layer: nn.Linear) -> dict[str, Callable[[Tensor], Tensor]]:
    """What computes a layer in float32 and 8-bit integers, with weights prepared; x (R, inputs)."""
    weight, bias = layer.weight.detach(), layer.bias.detach()
    found = {OURS: Product(layer), TORCH: functools.partial(nn.functional.linear, weight=weight, bias=bias)}
    if has_onednn():
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 256)
        found[ONEDNN] = lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    found[OURS_INT8] = Int8Product(layer)
    if torch.backends.quantized.engine not in (None, "none"):
        scales, zeros = weight.abs().amax(1) / 127, torch.zeros(len(weight), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch announces a successor
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        prepacked = torch.ops.quantized.linear_prepack(rounded, bias)
        found[TORCH_INT8] = lambda x: torch.ops.quantized.linear_dynamic(x, prepacked, False)
    return found


def time_products(inputs: int, outputs: int, rows: int, rounds: int, seed: int) -> dict:
    """Measure all on x (rows, inputs).

    Returns:
        The shape, and by contender ``seconds``, their median and quartiles, and ``ratios``, of ours to it: in
        8-bit integers if it computes in them.
    """
    generator = torch.Generator().manual_seed(seed)
    layer, x = nn.Linear(inputs, outputs), torch.randn(rows, inputs, generator=generator)
    calls = {name: functools.partial(call, x) for name, call in product_contenders(layer).items()}
    with torch.no_grad():
        times = time_calls(calls, rounds, seed, f"{rows} rows, {inputs} x {outputs}")
    return {
        "inputs": inputs,
        "outputs": outputs,
        "rows": rows,
        "seconds": {name: quartiles(values) for name, values in times.items()},
        "ratios": {peer: ratio(times[ours], times[peer]) for peer, ours in PEERS.items() if peer in times},
    }


def product_table(rows: list[dict]) -> str:
    """The rows of :func:`time_products` as Markdown: µs of ours, and that as a multiple of each peer's."""
    lines = [((f"{row['inputs']} → {row['outputs']}", row["rows"]), row) for row in rows]
    columns = [_time(OURS), *map(_ratio, (ONEDNN, TORCH)), _time(OURS_INT8), *map(_ratio, (TORCH_INT8, OURS))]
    return table(["inputs → outputs", "rows"], lines, columns)


def _time(name: str) -> Column:
    return Column(f"{name}, µs", lambda row: f"{1e6 * row['seconds'][name]['median']:.3g}")


def _ratio(peer: str) -> Column:
    return Column(f"×{peer}", lambda row: f"{row['ratios'][peer]:.2f}" if peer in row["ratios"] else "")
