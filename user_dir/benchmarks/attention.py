"""Time and memory of attention implementations in training and decoding, compared with targets."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..attention import attention
from ..tables import Column, markdown, mebibytes, table
from .contenders import PER_HEAD, Contender, alphas, failure
from .measure import peak_memory, quartiles, time_calls, warm_up

HEADS, HEAD_DIM = 8, 64  # those of the base model
# length → sentences, for about as many scores as attention layers have in training
SENTENCES = {32: 300, 64: 256, 128: 256, 256: 128, 512: 64, 1024: 32, 4096: 4}
DECODED = 160  # sentences × beam of a decoding step
GRAPH = "training, CUDA graph"  # without the time of Python and launches, on a GPU
GRAPH_SHARE = 16  # of the GPU's memory, the most that a captured call may allocate
MEASURES = ("forward", "training", GRAPH, "step")

FLASH, EFFICIENT = "softmax, SDPA flash", "softmax, SDPA memory-efficient"
CUDNN = "softmax, SDPA cuDNN"
FAIRSEQ, BISECTION = "softmax, as fairseq's context attention", "entmax_bisect, 50 steps"
ADASPLASH, FUSED, FUSED_15, DENSE = "AdaSplash v1", "ours, fused", "ours, fused at 1.5", "ours, dense"


CONTENDERS = (
    Contender(FLASH, 1.0, lambda q, k, v, alpha: _sdpa(SDPBackend.FLASH_ATTENTION, q, k, v)),
    Contender(CUDNN, 1.0, lambda q, k, v, alpha: _sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v)),
    Contender(EFFICIENT, 1.0, lambda q, k, v, alpha: _sdpa(SDPBackend.EFFICIENT_ATTENTION, q, k, v)),
    Contender(FAIRSEQ, 1.0, lambda q, k, v, alpha: _bmm_and_softmax(q, k, v)),
    Contender(BISECTION, PER_HEAD, lambda q, k, v, alpha: _bisection(q, k, v, alpha)),
    Contender(ADASPLASH, 1.5, lambda q, k, v, alpha: _adasplash(q, k, v, alpha), square=True),
    Contender(DENSE, PER_HEAD, lambda q, k, v, alpha: _ours(q, k, v, alpha, "dense")),
    Contender(FUSED_15, 1.5, lambda q, k, v, alpha: _ours(q, k, v, alpha, "fused")),
    Contender(FUSED, PER_HEAD, lambda q, k, v, alpha: _ours(q, k, v, alpha, "fused")),
)


# measure, name of the aim, ours, other, at most this share of the other's time, lengths
AIMS = (
    *(
        (measure, "training time / SDPA memory-efficient", FUSED, EFFICIENT, limit, lengths)
        for measure in ("training", GRAPH)
        for limit, lengths in ((1.5, (32, 64)), (3.0, (128, 256)))
    ),
    ("training", "training time / AdaSplash v1, α = 1.5", FUSED_15, ADASPLASH, 1.0, tuple(SENTENCES)[:-1]),
    ("training", "training time / entmax_bisect", FUSED, BISECTION, 1 / 20, tuple(SENTENCES)),
)


def time_attention(
    length: int,
    sentences: int,
    rounds: int,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    contenders: tuple[Contender, ...] = CONTENDERS,
    what: str = "",
) -> list[dict]:
    """Measure each implementation at one length, one row each.

    Queries, keys and values are drawn from N(0, 1.5²), so that scores are about N(0, 5). A decoding step is
    of ``DECODED`` sentences, or of ``sentences`` if these are fewer.

    Returns:
        Rows with ``seconds`` by measure: ``forward``, without gradients; ``training``, with all gradients,
        including α's if it has one; on a GPU, ``GRAPH``, training replayed from a CUDA graph; ``step``, one
        query without gradients. ``peak_bytes`` is that of training, excluding the inputs. Measures that fail
        are in ``failures``.
    """
    whole, step = _inputs(length, sentences, seed, device, dtype)
    calls, rows = {}, {}
    for contender in contenders:
        row = {"length": length, "sentences": sentences, "implementation": contender.name}
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
    for (contender, measure), times in time_calls(calls, rounds, seed, f"length {length} {what}").items():
        rows[contender]["seconds"][measure] = quartiles(times)
    return list(rows.values())


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
    ours = _ours(queries, draws[1], draws[2], alpha, "fused")
    found = torch.autograd.grad(ours, alpha, draws[3])[0].double()
    exact = alpha.detach().double().requires_grad_()
    expected = _ours(queries.double(), draws[1].double(), draws[2].double(), exact, "dense")
    truth = torch.autograd.grad(expected, exact, draws[3].double())[0]
    return float((found - truth).abs().max() / truth.abs().max())


def verdicts(rows: list[dict], error: float, tokens_to_stock: float | None) -> list[dict]:
    """Compare each target with the measurement; targets without a measurement are omitted."""
    by_name = {(row["length"], row["implementation"]): row for row in rows}
    found = []
    for measure, aim, ours, other, limit, lengths in AIMS:
        how = ", CUDA graph" if measure == GRAPH else ""
        for length in lengths:
            times = [_median(by_name.get((length, name)), measure) for name in (ours, other)]
            if None not in times:
                found.append(target(f"{aim}, n = {length}{how}", limit, times[0] / times[1]))
    found.append(target("relative error of the gradient of α", 1e-3, error))
    if tokens_to_stock is not None:
        aim = "training time per token / stock fairseq, base model"
        found.append(target(aim, 1 / 0.95, 1 / tokens_to_stock))
    return found


def target(aim: str, limit: float, measured: float) -> dict:
    """What is aimed at, what was measured, and whether that reaches it."""
    return {"aim": aim, "at most": limit, "measured": measured, "reached": measured <= limit}


def _median(row: dict | None, measure: str) -> float | None:
    if row is None or measure not in row["seconds"]:
        return None
    return row["seconds"][measure]["median"]


def attention_table(rows: list[dict]) -> str:
    """The rows of :func:`time_attention` as Markdown: ms per measure, ratio to SDPA, and memory."""
    base = {row["length"]: row["seconds"] for row in rows if row["implementation"] == EFFICIENT}
    tried = {measure for row in rows for measure in (*row["seconds"], *row["failures"])}
    measured = [measure for measure in MEASURES if measure in tried]
    columns = [column for measure in measured for column in _columns(measure, base)]
    columns.append(Column("peak in training, MiB", lambda row: mebibytes(row.get("peak_bytes"), ".1f")))
    lines = [([row["length"], row["sentences"], row["implementation"], row["alpha"]], row) for row in rows]
    return table(["n", "sentences", "attention", "α"], lines, columns)


def _columns(measure: str, base: dict[int, dict]) -> list[Column]:
    """Columns of a measure: its time or error, and its ratio to ``base`` at the same length."""

    def milliseconds(row: dict) -> str:
        if measure in row["failures"]:
            return row["failures"][measure].split(":")[0]
        median = _median(row, measure)
        return "" if median is None else f"{1000 * median:.3g}"

    def multiple(row: dict) -> str:
        median, others = _median(row, measure), base.get(row["length"], {})
        return "" if median is None or measure not in others else f"{median / others[measure]['median']:.2f}"

    return [Column(f"{measure}, ms", milliseconds), Column("×SDPA", multiple)]


def verdict_table(aims: list[dict]) -> str:
    """The result of :func:`verdicts` as Markdown."""
    lines = [
        [each["aim"], f"{each['at most']:.3g}", f"{each['measured']:.3g}", "yes" if each["reached"] else "no"]
        for each in aims
    ]
    return markdown(lines, ["target", "at most", "measured", "reached"])


def _sdpa(backend: SDPBackend, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    # A CPU has neither; other backends are used there, as a rehearsal.
    with sdpa_kernel([backend] if query.is_cuda else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        return F.scaled_dot_product_attention(query, key, value)


def _bmm_and_softmax(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scaled queries, bmm, softmax in float32, bmm, as in ``fairseq.modules.MultiheadAttention``."""
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return torch.matmul(torch.softmax(scores, -1, dtype=torch.float32).type_as(scores), value)


def _ours(query: Tensor, key: Tensor, value: Tensor, alpha: float | Tensor, backend: str) -> Tensor:
    return attention(query, key, value, alpha, backend=backend)[0]


def _bisection(query: Tensor, key: Tensor, value: Tensor, alpha: float | Tensor) -> Tensor:
    from entmax import entmax_bisect

    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return torch.matmul(entmax_bisect(scores.float(), alpha).type_as(scores), value)


def _adasplash(query: Tensor, key: Tensor, value: Tensor, alpha: float) -> Tensor:
    import adasplash

    first = getattr(adasplash, "adasplash_v1", adasplash.adasplash)
    query, key, value = (tensor.contiguous() for tensor in (query, key, value))  # AdaSplash requires this
    return first(query, key, value, alpha=alpha, is_causal=False)
