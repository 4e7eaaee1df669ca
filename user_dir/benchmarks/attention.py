"""Time and memory of attention implementations in training and decoding, compared with targets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..attention import attention
from ..tables import Column, markdown, mebibytes, table
from .contenders import PER_HEAD, alphas
from .measure import interleaved, peak_memory, quartiles, seconds, warm_up

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


@dataclass(frozen=True)
class AttentionContender:
    """An attention function (query, key, value, α) → output, all (B, H, n, D), and the α it is run with."""

    name: str
    alpha: float | str  # a number in every head, or PER_HEAD
    function: Callable[[Tensor, Tensor, Tensor, float | Tensor], Tensor]
    square: bool = False  # requires equal numbers of queries and keys
    dtype: torch.dtype | None = None  # dtype of its inputs if it differs from the others'


CONTENDERS = (
    AttentionContender(FLASH, 1.0, lambda q, k, v, alpha: _sdpa(SDPBackend.FLASH_ATTENTION, q, k, v)),
    AttentionContender(CUDNN, 1.0, lambda q, k, v, alpha: _sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v)),
    AttentionContender(EFFICIENT, 1.0, lambda q, k, v, alpha: _sdpa(SDPBackend.EFFICIENT_ATTENTION, q, k, v)),
    AttentionContender(FAIRSEQ, 1.0, lambda q, k, v, alpha: _bmm_and_softmax(q, k, v)),
    AttentionContender(BISECTION, PER_HEAD, lambda q, k, v, alpha: _bisection(q, k, v, alpha)),
    AttentionContender(ADASPLASH, 1.5, lambda q, k, v, alpha: _adasplash(q, k, v, alpha), square=True),
    AttentionContender(DENSE, PER_HEAD, lambda q, k, v, alpha: _ours(q, k, v, alpha, "dense")),
    AttentionContender(FUSED_15, 1.5, lambda q, k, v, alpha: _ours(q, k, v, alpha, "fused")),
    AttentionContender(FUSED, PER_HEAD, lambda q, k, v, alpha: _ours(q, k, v, alpha, "fused")),
)


def time_attention(
    length: int,
    sentences: int,
    rounds: int,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    contenders: tuple[AttentionContender, ...] = CONTENDERS,
    what: str = "",
) -> list[dict]:
    """Measure each implementation at one length, one row each.

    Args:
        length: number of queries and keys; in a decoding step, of keys.
        sentences: B in training; a decoding step has ``DECODED``, or this if smaller.
        rounds: number of runs of each implementation.
        seed: of the inputs and of the order within a round.
        device: where to run.
        dtype: of queries, keys and values, drawn from N(0, 1.5²), so that scores are about N(0, 5).
        contenders: the implementations.
        what: shown in the progress bar next to the length.

    Returns:
        Rows with ``seconds`` by measure: ``forward``, without gradients; ``training``, with all gradients,
        including α's if it has one; on a GPU, ``GRAPH``, training replayed from a CUDA graph; ``step``, one
        query without gradients. ``peak_bytes`` is that of training, excluding the inputs. Measures that fail
        are in ``failures``.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(count: int, rows: int) -> Tensor:
        # memory order (T, B, H, D), as of projections
        numbers = 1.5 * torch.randn(rows, count, HEADS, HEAD_DIM, generator=generator)
        return numbers.to(device, dtype).permute(1, 2, 0, 3)

    whole = [drawn(sentences, length) for _ in range(4)]
    decoded = min(DECODED, sentences)
    step = [drawn(decoded, rows) for rows in (1, length, length)]
    calls, rows = {}, {}
    for contender in contenders:
        rows[contender] = {"length": length, "sentences": sentences, "implementation": contender.name}
        rows[contender].update(alpha=contender.alpha, seconds={}, failures={})
        for measure, call in _calls(contender, whole, step).items():
            try:
                if measure == GRAPH:
                    _require_little_memory(rows[contender].get("peak_bytes", 0), device)
                    call = _captured(call)
                calls[contender, measure] = (call, warm_up(call, device))
                if measure == "training":
                    rows[contender]["peak_bytes"] = peak_memory(call, device)
            except Exception as error:  # other libraries may raise anything, and memory may run out
                said = " ".join(f"{type(error).__name__}: {error}".split())
                rows[contender]["failures"][measure] = said[:200]
    jobs = {
        key: functools.partial(lambda call, repeats, number: seconds(call, device, repeats), *calls[key])
        for key in calls
    }
    for (contender, measure), times in interleaved(jobs, rounds, seed, f"length {length} {what}").items():
        rows[contender]["seconds"][measure] = quartiles(times)
    return list(rows.values())


def _calls(
    contender: AttentionContender, whole: list[Tensor], step: list[Tensor]
) -> dict[str, Callable[[], object]]:
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

    def compare(aim: str, ours: str, other: str, limit: float, lengths, measure: str = "training") -> None:
        for length in lengths:
            times = [_median(by_name.get((length, name)), measure) for name in (ours, other)]
            if None not in times:
                ratio, how = times[0] / times[1], ", CUDA graph" if measure == GRAPH else ""
                found.append({"aim": f"{aim}, n = {length}{how}", "at most": limit, "measured": ratio})

    for measure in ("training", GRAPH):
        compare("training time / SDPA memory-efficient", FUSED, EFFICIENT, 1.5, (32, 64), measure)
        compare("training time / SDPA memory-efficient", FUSED, EFFICIENT, 3.0, (128, 256), measure)
    compare(
        "training time / AdaSplash v1, α = 1.5",
        FUSED_15,
        ADASPLASH,
        1.0,
        (32, 64, 128, 256, 512, 1024),
    )
    compare("training time / entmax_bisect", FUSED, BISECTION, 1 / 20, SENTENCES)
    found.append({"aim": "relative error of the gradient of α", "at most": 1e-3, "measured": error})
    if tokens_to_stock is not None:
        aim = "training time per token / stock fairseq, base model"
        found.append({"aim": aim, "at most": 1 / 0.95, "measured": 1 / tokens_to_stock})
    for verdict in found:
        verdict["reached"] = verdict["measured"] <= verdict["at most"]
    return found


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
        [aim["aim"], f"{aim['at most']:.3g}", f"{aim['measured']:.3g}", "yes" if aim["reached"] else "no"]
        for aim in aims
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
