"""Time and memory of attention implementations in training and decoding, compared with targets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..attention import attention
from ..tables import Column, markdown, mebibytes, table
from .attention_peers import (
    ADASPLASH,
    ADASPLASH_2,
    BEST,
    BISECTION,
    EFFICIENT,
    FUSED,
    FUSED_15,
    SOFTMAX,
    contenders,
)
from .contenders import Contender, alphas, failure
from .measure import peak_memory, quartiles, time_calls, warm_up

HEADS, HEAD_DIM = 8, 64  # those of the base model
# length → sentences, for about as many scores as attention layers have in training
SENTENCES = {32: 300, 64: 256, 128: 256, 256: 128, 512: 64, 1024: 32, 4096: 4}
CAUSAL_SENTENCES = {128: 256, 256: 128, 512: 64, 1024: 32, 4096: 4, 16384: 1}  # the same under a causal mask
LONGEST_BISECTED = 1024  # beyond, a training step with ``entmax_bisect`` takes most of a second
DECODED = 160  # sentences × beam of a decoding step
GRAPH = "training, CUDA graph"  # without the time of Python and launches, on a GPU
GRAPH_SHARE = 16  # of the GPU's memory, the most that a captured call may allocate
MEASURES = ("forward", "training", GRAPH, "step")

# mask, measure, ours, other, at most this share of the other's time, lengths
AIMS = (
    ("full", "training", FUSED, EFFICIENT, 1.0, (32, 64)),
    ("full", GRAPH, FUSED, EFFICIENT, 1.0, (32, 64, 128)),
    ("full", GRAPH, FUSED, BEST, 1.5, (256, 512, 1024)),
    ("full", "step", FUSED, EFFICIENT, 1.2, tuple(SENTENCES)),
    ("full", "training", FUSED_15, ADASPLASH, 1.0, tuple(SENTENCES)[:-1]),
    ("full", "training", FUSED, BISECTION, 1 / 20, tuple(SENTENCES)),
    ("causal", GRAPH, FUSED, BEST, 1.0, (128,)),
    ("causal", GRAPH, FUSED, BEST, 1.5, (256, 512, 1024)),
    ("causal", "training", FUSED_15, ADASPLASH_2, 1.0, tuple(CAUSAL_SENTENCES)[2:]),
)


def time_attention(
    length: int,
    sentences: int,
    rounds: int,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    compared: tuple[Contender, ...] | None = None,
    causal: bool = False,
) -> list[dict]:
    """Measure each implementation at one length, one row each.

    Queries, keys and values are drawn from N(0, 1.5²), so that scores are about N(0, 5). A decoding step is
    of ``DECODED`` sentences, or of ``sentences`` if these are fewer.

    Args:
        compared: what to measure; by default :func:`contenders`, but bisection only of shorter rows.
        causal: the mask, which is noted in each row.

    Returns:
        Rows with ``seconds`` by measure: ``forward``, without gradients; ``training``, with all gradients,
        including α's if it has one; on a GPU, ``GRAPH``, training replayed from a CUDA graph; ``step``, one
        query without gradients. ``peak_bytes`` is that of training, excluding the inputs. Measures that fail
        are in ``failures``.
    """
    whole, step = _inputs(length, sentences, seed, device, dtype)
    calls, rows = {}, {}
    mask = "causal" if causal else "full"
    for contender in _compared(length, causal) if compared is None else compared:
        row = {"length": length, "sentences": sentences, "mask": mask, "implementation": contender.name}
        rows[contender] = row = row | {"alpha": contender.alpha, "seconds": {}, "failures": {}}
        for measure, call in _calls(contender, whole, step).items():
            try:
                if measure == GRAPH:
                    _require_little_memory(row.get("peak_bytes", 0), device)
                    call = _captured(call)
                warm_up(call)
                if measure == "training":
                    row["peak_bytes"] = peak_memory(call, device)
                calls[contender, measure] = call
            except Exception as error:  # other libraries may raise anything, and memory may run out
                row["failures"][measure] = failure(error)[:200]
    for (contender, measure), times in time_calls(calls, rounds, seed, f"length {length} {mask}").items():
        rows[contender]["seconds"][measure] = quartiles(times)
    return list(rows.values())


def _compared(length: int, causal: bool) -> list[Contender]:
    return [each for each in contenders(causal) if each.name != BISECTION or length <= LONGEST_BISECTED]


def _inputs(
    length: int, sentences: int, seed: int, device: torch.device, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    """Queries, keys, values and gradients of training; queries, keys and values of a decoding step."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(count: int, rows: int) -> Tensor:
        # memory order (T, B, H, D), as of projections
        numbers = 1.5 * torch.randn(rows, count, HEADS, HEAD_DIM, generator=generator)
        return numbers.to(device, dtype).permute(1, 2, 0, 3)

    whole = [drawn(sentences, length) for _ in range(4)]
    return whole, [drawn(min(DECODED, sentences), rows) for rows in (1, length, length)]


def _calls(contender: Contender, whole: list[Tensor], step: list[Tensor]) -> dict[str, Callable[[], object]]:
    alpha = alphas(contender.alpha, HEADS, whole[0].device)
    if contender.dtype is not None:
        whole, step = ([tensor.to(contender.dtype) for tensor in tensors] for tensors in (whole, step))
    leaves = [tensor.detach().requires_grad_() for tensor in whole[:3]]
    learned = alpha.clone().requires_grad_() if isinstance(alpha, Tensor) else alpha
    inputs = [*leaves, learned] if isinstance(alpha, Tensor) else leaves

    def without_gradients(tensors):
        with torch.no_grad():
            return contender.function(*tensors, alpha)

    calls = {
        "forward": lambda: without_gradients(whole[:3]),
        "training": lambda: torch.autograd.grad(contender.function(*leaves, learned), inputs, whole[3]),
    }
    if whole[0].is_cuda:
        calls[GRAPH] = calls["training"]
    if not contender.square:
        calls["step"] = lambda: without_gradients(step)
    return calls


def _require_little_memory(peak: int, device: torch.device) -> None:
    """Raise MemoryError for a call with a large peak: what a CUDA graph allocates, it keeps."""
    if peak > torch.cuda.mem_get_info(device)[1] / GRAPH_SHARE:
        raise MemoryError("a CUDA graph would keep too much memory")


def _captured(call: Callable[[], object]) -> Callable[[], object]:
    """A call that replays the work of ``call`` on the GPU."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # on the stream of the capture, where torch has prepared nothing yet
        call()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def alpha_error(length: int, seed: int, device: torch.device, dtype: torch.dtype) -> float:
    """Largest relative error of our gradient of α, compared with dense attention in float64."""
    generator = torch.Generator().manual_seed(seed)
    draws = [torch.randn(4, HEADS, length, HEAD_DIM, generator=generator).to(device, dtype) for _ in range(4)]
    alpha = torch.linspace(1.0, 2.0, HEADS, device=device).view(-1, 1, 1).requires_grad_()
    queries = draws[0] * 1.5
    ours, _ = attention(queries, draws[1], draws[2], alpha, backend="fused")
    found = torch.autograd.grad(ours, alpha, draws[3])[0].double()
    exact = alpha.detach().double().requires_grad_()
    doubles = [draw.double() for draw in (queries, *draws[1:3])]
    expected, _ = attention(*doubles, exact, backend="dense")
    truth = torch.autograd.grad(expected, exact, draws[3].double())[0]
    return float((found - truth).abs().max() / truth.abs().max())


def verdicts(rows: list[dict], error: float) -> list[dict]:
    """Compare each target with the measurement; targets without a measurement are omitted."""
    medians = {
        (row["mask"], row["length"], row["implementation"], measure): times["median"]
        for row in rows
        for measure, times in row["seconds"].items()
    }
    found = []
    for mask, measure, ours, other, limit, lengths in AIMS:
        for length in lengths:
            names = SOFTMAX if other == BEST else (other,)
            others = [medians.get((mask, length, name, measure)) for name in names]
            others = [seconds for seconds in others if seconds is not None]
            seconds = medians.get((mask, length, ours, measure))
            if others and seconds is not None:
                aim = f"{measure}, {mask}, n = {length}: {ours} / {other}"
                found.append(target(aim, limit, seconds / min(others)))
    found.append(target("relative error of the gradient of α", 1e-3, error))
    return found


def target(aim: str, limit: float, measured: float) -> dict:
    """What is aimed at, what was measured, and whether that reaches it."""
    return {"aim": aim, "at most": limit, "measured": measured, "reached": measured <= limit}


def attention_table(rows: list[dict]) -> str:
    """The rows of :func:`time_attention` as Markdown: ms per measure, ratio to SDPA, and memory.

    What ran in no measure is listed below with its reason.
    """
    base = {
        (row["length"], row["mask"]): row["seconds"] for row in rows if row["implementation"] == EFFICIENT
    }
    ran = [row for row in rows if row["seconds"]] or rows
    tried = {measure for row in ran for measure in (*row["seconds"], *row["failures"])}
    measured = [measure for measure in MEASURES if measure in tried]
    columns = [column for measure in measured for column in _columns(measure, base)]
    columns.append(Column("peak in training, MiB", lambda row: mebibytes(row.get("peak_bytes"), ".1f")))
    places = ("length", "sentences", "mask", "implementation", "alpha")
    lines = [([row[place] for place in places], row) for row in ran]
    return table(["n", "sentences", "mask", "attention", "α"], lines, columns) + _left_out(rows)


def _left_out(rows: list[dict]) -> str:
    """Lines about the contenders that ran in no measure: their reasons, and the lengths."""
    lengths: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if not row["seconds"]:
            reason = next(iter(row["failures"].values()))
            lengths.setdefault((row["implementation"], reason), []).append(f"{row['length']} {row['mask']}")
    lines = [f"left out: {name} (n = {', '.join(n)}): {reason}" for (name, reason), n in lengths.items()]
    return "".join(f"\n\n{line}" for line in lines)


def _columns(measure: str, base: dict[tuple, dict]) -> list[Column]:
    """Columns of a measure: its time or error, and its ratio to ``base`` at the same length and mask."""

    def median(row: dict) -> float | None:
        return row["seconds"][measure]["median"] if measure in row["seconds"] else None

    def milliseconds(row: dict) -> str:
        if measure in row["failures"]:
            return row["failures"][measure].split(":")[0]
        return "" if median(row) is None else f"{1000 * median(row):.3g}"

    def multiple(row: dict) -> str:
        others = base.get((row["length"], row["mask"]), {})
        if median(row) is None or measure not in others:
            return ""
        return f"{median(row) / others[measure]['median']:.2f}"

    return [Column(f"{measure}, ms", milliseconds), Column("×SDPA", multiple)]


def verdict_table(aims: list[dict]) -> str:
    """The result of :func:`verdicts` as Markdown."""
    lines = [
        [each["aim"], f"{each['at most']:.3g}", f"{each['measured']:.3g}", "yes" if each["reached"] else "no"]
        for each in aims
    ]
    return markdown(lines, ["target", "at most", "measured", "reached"])
