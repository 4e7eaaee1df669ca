#!/usr/bin/env python3
"""Time and memory of our attention by length, beside PyTorch's and AdaSplash.

    python benchmarks/attention.py --lengths 512 --threads 2
    ATEN_CPU_CAPABILITY=avx2 python benchmarks/attention.py

8 heads of 64 dimensions; queries, keys and values from N(0, 1.5²); float32 on a CPU unless another dtype is
named, bfloat16 on a GPU. *training*: forward and backward, with the gradient of α if it is learned (1.05 to
1.95 over the heads); *graph*: training replayed from a CUDA graph, without the time that Python takes.
A contender that cannot run is listed with the reason.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from measure import begin, new_parser, peak_memory, ratio, table, time_calls
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from user_dir.attention import attention
from user_dir.files import write_json

HEADS, HEAD_DIM = 8, 64  # those of the base model
LENGTHS = (32, 128, 512, 1024, 2048, 4096)  # on a CPU, in batches of 2,048 tokens, at least one sentence
GPU_SENTENCES = {32: 300, 64: 256, 128: 256, 256: 128, 512: 64, 1024: 32, 4096: 4, 16384: 1}  # by length


@dataclass(frozen=True)
class Contender:
    """An attention of queries, keys, values and α; ``alpha`` is None if it is learned per head."""

    name: str
    function: Callable[..., Tensor]
    alpha: float | None = 1.0
    dtype: torch.dtype | None = None
    base: str = "softmax, SDPA"  # the contender that its time is compared with


def on_cpu(causal: bool) -> list[Contender]:
    """PyTorch's attention in two dtypes; ours at 1.5, and with α learned, also with dropout."""

    def sdpa(query, key, value, alpha):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def ours(query, key, value, alpha, dropout=0.0):
        return attention(query, key, value, alpha, causal=causal, dropout=dropout)[0]

    half, base = torch.bfloat16, "softmax, SDPA, bfloat16"
    return [
        Contender("softmax, SDPA", sdpa),
        Contender("α-entmax, α learned", ours, None),
        Contender("α-entmax, α = 1.5", ours, 1.5),
        Contender("α-entmax, α learned, dropout 0.1", functools.partial(ours, dropout=0.1), None),
        Contender(base, sdpa, dtype=half, base=base),
        Contender("α-entmax, α learned, bfloat16", ours, None, half, base),
    ]


def on_gpu(causal: bool) -> list[Contender]:
    """Softmax by PyTorch, AdaSplash, and ours."""
    base = "softmax, SDPA memory-efficient"

    def sdpa(backend: SDPBackend, query, key, value, alpha):
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def adasplash(query, key, value, alpha):
        import adasplash

        inputs = [tensor.contiguous() for tensor in (query, key, value)]
        if causal:
            return adasplash.adasplash_v2(*inputs)  # for this mask and α = 1.5 only
        return getattr(adasplash, "adasplash_v1", adasplash.adasplash)(*inputs, alpha=alpha, is_causal=False)

    def ours(query, key, value, alpha):
        return attention(query, key, value, alpha, causal=causal, backend="fused")[0]

    return [
        Contender("softmax, SDPA flash", functools.partial(sdpa, SDPBackend.FLASH_ATTENTION), base=base),
        Contender("softmax, SDPA cuDNN", functools.partial(sdpa, SDPBackend.CUDNN_ATTENTION), base=base),
        Contender(base, functools.partial(sdpa, SDPBackend.EFFICIENT_ATTENTION), base=base),
        Contender("AdaSplash", adasplash, 1.5, base=base),
        Contender("ours, α = 1.5", ours, 1.5, base=base),
        Contender("ours, α learned", ours, None, base=base),
    ]


def calls_of(contender: Contender, whole: list[Tensor]) -> dict[str, Callable[[], object]]:
    """What is measured of a contender, by name; ``whole`` are queries, keys, values and a gradient."""
    alpha = contender.alpha
    if alpha is None:
        alpha = torch.linspace(1.05, 1.95, HEADS, device=whole[0].device).view(-1, 1, 1)
    if contender.dtype is not None:
        whole = [tensor.to(contender.dtype) for tensor in whole]
    leaves = [tensor.detach().requires_grad_() for tensor in whole[:3]]
    learned = [alpha.clone().requires_grad_()] if contender.alpha is None else []
    forward = torch.no_grad()(contender.function)

    def training():
        output = contender.function(*leaves, *(learned or [alpha]))
        return torch.autograd.grad(output, [*leaves, *learned], whole[3])

    calls = {"forward": lambda: forward(*whole[:3], alpha), "training": training}
    if whole[0].is_cuda:
        calls["graph"] = training
    return calls


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """A call that replays the work of ``call`` on the GPU."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # warms up the capture's stream, where torch has prepared nothing yet
        call()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def compare(
    compared: list[Contender], length: int, sentences: int, mask: str, rounds: int, seed: int, device: str
) -> list[dict]:
    """A row per contender and measure."""
    generator = torch.Generator().manual_seed(seed)

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shape = length, sentences, HEADS, HEAD_DIM  # memory order (T, B, H, D), as of projections
    drawn = [1.5 * torch.randn(shape, generator=generator) for _ in range(4)]
    whole = [tensor.to(device, dtype).permute(1, 2, 0, 3) for tensor in drawn]
    calls, rows = {}, {}
    for contender in compared:
        for measure, call in calls_of(contender, whole).items():
            row = {"length": length, "sentences": sentences, "mask": mask}
            row |= {"attention": contender.name, "measure": measure}
            rows[contender.name, measure] = row
            try:
                call = captured(call) if measure == "graph" else call
                call()
                row["peak_mib"] = peak_memory(call, device) / 2**20 if measure == "training" else None
                calls[contender.name, measure] = call
            except Exception as error:  # other libraries may raise anything, and memory may run out
                row["failure"] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    times, bases = time_calls(calls, rounds, seed), {contender.name: contender.base for contender in compared}
    for (name, measure), values in times.items():
        base = times.get((bases[name], measure))
        rows[name, measure] |= {
            "ms": 1e3 * statistics.median(values),
            "to_sdpa": base and ratio(values, base),
        }
    return list(rows.values())


def main() -> None:
    """Measure each length, print, and write what is known."""
    parser = new_parser(__doc__, rounds=11)
    what = "queries and keys (default: by device)"
    parser.add_argument("--lengths", type=int, nargs="+", metavar="N", help=what)
    args = parser.parse_args()
    device, report = begin(args)
    usual = {} if device == "cpu" else GPU_SENTENCES
    report.update(rows=[])
    for length in args.lengths or ([32, 512] if args.quick else usual or LENGTHS):
        sentences = 1 if args.quick else usual.get(length, max(1, 2048 // length))
        for mask in ("full", "causal"):
            compared = (on_gpu if device == "cuda" else on_cpu)(mask == "causal")
            rows = compare(compared, length, sentences, mask, args.rounds, args.seed, device)
            report["rows"] += rows
            write_json(args.output, report)
            print(table(rows) + "\n", flush=True)
    print(args.output)


if __name__ == "__main__":
    main()
