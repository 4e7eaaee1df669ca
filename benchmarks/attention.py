#!/usr/bin/env python3
"""Time and memory of our attention by length, beside PyTorch's, FlexAttention and AdaSplash.

    python benchmarks/attention.py --lengths 512 --threads 2
    ATEN_CPU_CAPABILITY=avx2 python benchmarks/attention.py

8 heads of 64 dimensions; queries, keys and values from N(0, 1.5²); float32 on a CPU unless another dtype is
named, bfloat16 on a GPU. *training*: forward and backward, with the gradient of α where that is learned
(1.05 to 1.95 over the heads); *graph*: the same, replayed from a CUDA graph, without the time of Python.
What cannot run is listed with the reason.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from measure import begin, new_parser, peak_memory, table, time_calls
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from user_dir.attention import attention
from user_dir.files import write_json

HEADS, HEAD_DIM = 8, 64  # those of the base model
SENTENCES = {32: 64, 128: 16, 512: 4, 1024: 2, 2048: 1, 4096: 1}  # by length, on a CPU
GPU_SENTENCES = {32: 300, 64: 256, 128: 256, 256: 128, 512: 64, 1024: 32, 4096: 4, 16384: 1}
GRAPH = "graph"


@dataclass(frozen=True)
class Contender:
    """An attention of queries, keys, values and α; ``alpha`` is None if it is learned per head."""

    name: str
    function: Callable[..., Tensor]
    alpha: float | None = 1.0
    dtype: torch.dtype | None = None
    base: str = "softmax, SDPA"  # what its time is a multiple of


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
    """Softmax by PyTorch, other α-entmax, and ours."""
    base = "softmax, SDPA memory-efficient"

    def sdpa(backend: SDPBackend, query, key, value, alpha):
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def flex(query, key, value, alpha):
        from torch.nn.attention.flex_attention import flex_attention

        return torch.compile(flex_attention)(query, key, value)

    def adasplash(query, key, value, alpha):
        import adasplash

        inputs = [tensor.contiguous() for tensor in (query, key, value)]
        if causal:
            return adasplash.adasplash_v2(*inputs)  # for this mask and α = 1.5 only
        return getattr(adasplash, "adasplash_v1", adasplash.adasplash)(*inputs, alpha=alpha, is_causal=False)

    def ours(query, key, value, alpha):
        return attention(query, key, value, alpha, causal=causal, backend="fused")[0]

    softmax = {
        "softmax, SDPA flash": functools.partial(sdpa, SDPBackend.FLASH_ATTENTION),
        "softmax, SDPA cuDNN": functools.partial(sdpa, SDPBackend.CUDNN_ATTENTION),
        base: functools.partial(sdpa, SDPBackend.EFFICIENT_ATTENTION),
        **({} if causal else {"softmax, FlexAttention": flex}),
    }
    contenders = [Contender(name, function, base=base) for name, function in softmax.items()]
    contenders.append(Contender("AdaSplash", adasplash, 1.5, base=base))
    contenders.append(Contender("ours, α = 1.5", ours, 1.5, base=base))
    return [*contenders, Contender("ours, α learned", ours, None, base=base)]


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
        calls[GRAPH] = training
    return calls


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """A call that replays the work of ``call`` on the GPU."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # on the stream of the capture, where torch has prepared nothing yet
        call()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def compare(length: int, sentences: int, causal: bool, rounds: int, seed: int, device: str) -> list[dict]:
    """A row per contender: seconds and multiples by measure, peak of training, reasons of failures."""
    generator = torch.Generator().manual_seed(seed)

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shape = length, sentences, HEADS, HEAD_DIM  # memory order (T, B, H, D), as of projections
    drawn = [1.5 * torch.randn(shape, generator=generator) for _ in range(4)]
    whole = [tensor.to(device, dtype).permute(1, 2, 0, 3) for tensor in drawn]
    calls, rows = {}, {}
    mask = "causal" if causal else "full"
    for contender in on_gpu(causal) if device == "cuda" else on_cpu(causal):
        row = {"length": length, "sentences": sentences, "mask": mask, "attention": contender.name}
        row |= {"base": contender.base, "seconds": {}, "failures": {}}
        rows[contender.name] = row
        for measure, call in calls_of(contender, whole).items():
            try:
                call = captured(call) if measure == GRAPH else call
                call()
                if measure == "training":
                    row["peak_bytes"] = peak_memory(call, device)
                calls[contender.name, measure] = call
            except Exception as error:  # other libraries may raise anything, and memory may run out
                row["failures"][measure] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    for (name, measure), times in time_calls(calls, rounds, seed).items():
        rows[name]["seconds"][measure] = statistics.median(times)
    for row in rows.values():
        base, times = rows[row["base"]]["seconds"], row["seconds"]
        row["multiples"] = {measure: times[measure] / base[measure] for measure in times if measure in base}
    return list(rows.values())


def as_table(rows: list[dict]) -> str:
    """The rows of :func:`compare` as Markdown, and what did not run."""
    measures, cells = list(dict.fromkeys(measure for row in rows for measure in row["seconds"])), []
    for row in rows:
        cells.append([row["length"], row["sentences"], row["mask"], row["attention"]])
        for measure in measures:
            seconds = row["seconds"].get(measure)
            cells[-1] += [seconds and 1e3 * seconds, row["multiples"].get(measure)]
        cells[-1].append(row["peak_bytes"] / 2**20 if "peak_bytes" in row else None)
    headers = [header for measure in measures for header in (f"{measure}, ms", "×SDPA")]
    shown = table(cells, ["n", "sentences", "mask", "attention", *headers, "peak of training, MiB"])
    reasons = [f"{row['attention']}, {name}: {why}" for row in rows for name, why in row["failures"].items()]
    return "\n\n".join([shown, *reasons])


def main() -> None:
    """Measure each length, print, and write what is known."""
    parser = new_parser(__doc__, rounds=11)
    what = "queries and keys (default: by device)"
    parser.add_argument("--lengths", type=int, nargs="+", metavar="N", help=what)
    args = parser.parse_args()
    device, report = begin(args)
    usual = SENTENCES if device == "cpu" else GPU_SENTENCES
    rounds = args.rounds or (3 if args.quick else 11)
    report.update(rounds=rounds, rows=[])
    for length in args.lengths or ([32, 512] if args.quick else usual):
        for causal in (False, True):
            sentences = 1 if args.quick else usual.get(length, max(1, 2048 // length))
            rows = compare(length, sentences, causal, rounds, args.seed, device)
            report["rows"] += rows
            write_json(args.output, report)
            print(as_table(rows) + "\n", flush=True)
    print(args.output)


if __name__ == "__main__":
    main()
