"""The Triton kernels, run on a GPU or in Triton's interpreter, and compiled without a GPU."""

import pytest
import torch
from helpers import (
    HALF_TYPES,
    assert_within,
    each_once,
    entmax_oracle,
    entmax_oracle_gradients,
    gradient_tolerances,
    mp_entmax,
    mp_entmax_gradients,
    weight_tolerance,
)
from no_gpu import compiled_apart

pytest.importorskip("triton")

from user_dir.entmax import entmax, reference, selection, self_check
from user_dir.entmax import triton as kernels

# The interpreter computes with numpy, which warns about infinities that the kernels handle.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ALPHAS = (1.0, 1.001, 1.01, 1.25, 1.5, 1.75, 1.99, 2.0, 2.5, 4.0)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF = float("inf")


@pytest.fixture
def backend():
    """Not used: these tests call the kernels directly."""


@pytest.fixture
def small_tiles(monkeypatch):
    """Makes every row a long one, with tiles of 32."""
    monkeypatch.setattr(kernels, "RESIDENT", 0)
    monkeypatch.setattr(kernels, "TILE", 32)


def on_device(*tensors):
    return [tensor.to(DEVICE) for tensor in tensors]


def forward(scores, alpha, dim=-1):
    return kernels.entmax_forward(*on_device(scores, alpha), dim).cpu()


def backward(weights, alpha, grad, dim=-1, need_alpha=True):
    dz, da = kernels.entmax_backward(*on_device(weights, alpha, grad), dim, need_alpha)
    return dz.cpu(), da if da is None else da.cpu()


SCALES = (1e-3, 1.0, 30.0, 1e4)


def rows_of(n, dtype, scales):
    """Rows of several scales, including ties and a half-masked row."""
    rows = [scale * torch.randn(n, dtype=torch.float64) for scale in scales]
    ties = torch.randn(n, dtype=torch.float64).mul(2).round()
    masked = ties.clone()
    masked[1::2] = -INF
    return torch.stack([*rows, ties, masked]).to(dtype)


# ------------------------------------------------------------------------------------ against oracles


def check_against_bisection(n, dtype, scales=SCALES):
    rows = rows_of(n, dtype, scales)
    scores = torch.stack([rows[:, torch.randperm(n)] for _ in ALPHAS])
    grad = torch.randn_like(scores)
    alpha = torch.tensor(ALPHAS, dtype=torch.float64).view(-1, 1, 1)
    weights = forward(scores, alpha)
    dz, da = backward(weights, alpha, grad)
    assert weights.dtype == dz.dtype == dtype and da.dtype == torch.float64

    expected = entmax_oracle(scores, alpha)
    expected_dz, expected_da, _ = entmax_oracle_gradients(expected, alpha, grad)
    dz_tolerance, da_tolerance = gradient_tolerances(expected, scores, alpha, grad)
    assert_within(weights, expected, weight_tolerance(expected, scores, alpha), "weights")
    # a score's gradient is a share w of the span; for α > 2 it can exceed 1, and so can its rounding error
    share = torch.where(expected > 0, expected.clamp(min=1e-300).pow(2 - alpha), 0.0).clamp(min=1)
    assert_within(dz, expected_dz, dz_tolerance * share, "gradient of scores")
    # the second term: errors of the oracle by cancellation
    cancelled = 1e-15 * len(rows) / (alpha - 1).clamp(min=1e-3).square()
    tolerance = da_tolerance.sum((1, 2), keepdim=True) + cancelled
    assert_within(da, expected_da.sum((1, 2), keepdim=True), tolerance, "gradient of α")


@pytest.mark.parametrize("n", (1, 3, 16, 33, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 17))))
def test_against_bisection(n):
    check_against_bisection(n, torch.float32)


@pytest.mark.parametrize("n", (100, pytest.param(257, marks=pytest.mark.nightly)))
def test_single_rows_against_bisection(n):
    check_against_bisection(n, torch.float32, (1.0, 30.0))


@pytest.mark.parametrize("n", (2, pytest.param(17, marks=pytest.mark.nightly)))
def test_float64_against_bisection(n):
    check_against_bisection(n, torch.float64)


@pytest.mark.nightly
def test_tiles_against_bisection(small_tiles):
    check_against_bisection(40, torch.float32, (1.0,))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "n, dtype",
    [
        (1000, torch.float32),
        (4096, torch.float32),
        (5000, torch.float32),
        (257, torch.float64),
        (5000, torch.float64),
    ],
)
def test_long_rows_against_bisection(n, dtype):
    check_against_bisection(n, dtype, (1.0, 30.0))


@pytest.mark.nightly
def test_the_longest_rows_against_bisection():
    check_against_bisection(16384, torch.float32, ())


@pytest.mark.parametrize(
    "case",
    each_once(alpha=(1.0, 1 + 1e-7, 1 + 1e-5, 1.001, 1.5, 2.0), dtype=(torch.float32, torch.float64)),
)
def test_against_sixty_digits(case):
    alpha, dtype = case.values()
    scores = torch.tensor([[0.1], [3.0]]) * torch.randn(2, 7)
    scores[:, 3] = -INF
    scores, grad = scores.to(dtype), torch.randn(2, 7).to(dtype)
    a = torch.tensor(alpha, dtype=torch.float64)
    weights = forward(scores, a)
    dz, da = backward(weights, a, grad)

    rows, gradients = scores.tolist(), grad.tolist()
    expected = torch.tensor([[float(x) for x in mp_entmax(z, alpha)] for z in rows], dtype=torch.float64)
    exact = [mp_entmax_gradients(z, alpha, g) for z, g in zip(rows, gradients)]
    dz_tolerance, da_tolerance = gradient_tolerances(expected, scores, a, grad)
    assert_within(weights, expected, weight_tolerance(expected, scores, a), "weights")
    assert_within(dz, torch.tensor([x for x, _ in exact], dtype=torch.float64), dz_tolerance, "gradient")
    expected_da = torch.tensor(sum(x for _, x in exact), dtype=torch.float64)
    assert_within(da, expected_da, da_tolerance.sum(), "gradient of α")


@pytest.mark.parametrize("alpha", (1 + 2.0**-23, 1 + 1e-7, 1 + 1e-4))
def test_close_to_softmax_in_float32(alpha):
    # The oracles above lose all digits to cancellation here; the float64 reference does not.
    scores = torch.tensor([[1e-3], [1.0], [30.0]]) * torch.randn(3, 100)
    grad = torch.randn_like(scores)
    a = torch.tensor(alpha, dtype=torch.float64)
    weights = forward(scores, a)
    dz, da = backward(weights, a, grad)
    expected = reference.entmax_forward(scores.double(), a)
    expected_dz, expected_da = reference.entmax_backward(expected, a, grad.double())
    dz_tolerance, da_tolerance = gradient_tolerances(expected, scores, a, grad)
    assert_within(weights, expected, weight_tolerance(expected, scores, a), "weights")
    assert_within(dz, expected_dz, dz_tolerance, "gradient of scores")
    assert_within(da, expected_da, da_tolerance.sum(), "gradient of α")


def test_alpha_one_is_softmax():
    scores = torch.randn(4, 33) * 5
    scores[2, 1::2] = -INF
    expected = torch.softmax(scores.double(), -1)
    # rounding of the scores before the exponential, then of the exponential and of the sum
    tolerance = expected * (scores.amax(-1, keepdim=True) - scores.clamp(min=-50) + 8) * 2.0**-23
    assert_within(forward(scores, torch.tensor(1.0)), expected, tolerance + 1e-30, "weights")


@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_half_precision_is_computed_in_float32(dtype):
    scores = (4 * torch.randn(4, 3, 50)).to(dtype)
    scores[:, 1, 25:] = -INF
    grad = torch.randn(4, 3, 50).to(dtype)
    alpha = torch.tensor([1.0, 1.0001, 1.5, 1.9]).view(4, 1, 1)
    weights = forward(scores, alpha)
    dz, da = backward(weights, alpha, grad)
    assert weights.dtype == dz.dtype == dtype and da.dtype == torch.float32

    # half a unit in the last place (a unit in the interpreter, which truncates bfloat16); subnormals: fixed
    # unit
    cut_off = DEVICE == "cpu" and dtype == torch.bfloat16
    rounding = torch.finfo(dtype).eps * (1.0 if cut_off else 0.5)
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    expected = entmax_oracle(scores.float(), alpha)
    tolerance = weight_tolerance(expected, scores.float(), alpha)
    assert_within(weights, expected, rounding * expected + least + tolerance, "weights")
    # The backward pass starts from the rounded weights.
    expected_dz, expected_da = reference.entmax_backward(weights.double(), alpha.double(), grad.double())
    dz_tolerance = rounding * expected_dz.abs() + least + 1e-5 * expected_dz.abs().max()
    assert_within(dz, expected_dz, dz_tolerance, "gradient of scores")
    _, da_tolerance = gradient_tolerances(weights.double(), scores.float(), alpha, grad)
    assert_within(da, expected_da, da_tolerance.sum((1, 2), keepdim=True), "gradient of α")


@pytest.mark.parametrize("value", (0.5, -1.0, INF, -INF, float("nan")))
def test_alpha_out_of_range_gives_nan(value):
    # Raising an error would synchronise with the device at every call.
    scores = torch.randn(3, 4, 5)
    weights = forward(scores, torch.tensor([1.5, value, 1.0]).view(3, 1, 1))
    assert weights[1].isnan().all() and weights[[0, 2]].isfinite().all()


# ----------------------------------------------------------------------------- like the reference


LAYOUTS = {
    "last": ((2, 3, 4, 5), -1, lambda x: x),
    "first": ((6, 4), 0, lambda x: x),
    "middle": ((2, 5, 3), 1, lambda x: x),
    "transposed": ((2, 3, 6), -1, lambda x: x.transpose(0, 2).contiguous().transpose(0, 2)),
    "strided": ((3, 6), -1, lambda x: torch.stack([x, x], -1).flatten(-2)[:, ::2]),
    "expanded": ((3, 6), 0, lambda x: x[:, :1].expand(3, 6)),
    "no dimension": ((), -1, lambda x: x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(layout):
    shape, dim, view = LAYOUTS[layout]
    scores, grad = view(torch.randn(shape)), view(torch.randn(shape))
    alpha = torch.tensor(1.3)
    weights = forward(scores, alpha, dim)
    assert_within(weights, reference.entmax_forward(scores, alpha, dim), 1e-6, "weights")
    dz, da = backward(view(weights), alpha, grad, dim)
    expected_dz, expected_da = reference.entmax_backward(view(weights), alpha, grad, dim)
    assert_within(dz, expected_dz, 1e-5, "gradient of scores")
    assert_within(da, expected_da, 1e-5, "gradient of α")


SHAPES = [(), (1,), (3, 1, 1), (4, 1), (2, 3, 4, 1), (2, 1, 1, 1), (2, 1, 4, 1)]


@pytest.mark.parametrize("case", each_once(shape=SHAPES, dim=(-1, 1)))
def test_any_shape_of_alpha(case):
    shape, dim = case.values()
    # for dim 1, the sizes 3 and 5 are swapped in scores and α
    alpha = 1.1 + torch.rand(shape)
    scores, grad = torch.randn(2, 2, 3, 4, 5)
    if dim == 1:
        scores, grad = scores.transpose(1, 3), grad.transpose(1, 3)
        alpha = alpha.view((1,) * (4 - alpha.dim()) + alpha.shape).transpose(1, 3)
    weights = forward(scores, alpha, dim)
    assert_within(weights, reference.entmax_forward(scores, alpha, dim), 1e-6, "weights")
    dz, da = backward(weights, alpha, grad, dim)
    expected_dz, expected_da = reference.entmax_backward(weights, alpha, grad, dim)
    assert_within(dz, expected_dz, 1e-5, "gradient of scores")
    assert_within(da, expected_da, 1e-5 * (1 + expected_da.abs()), "gradient of α")


def test_alpha_of_any_layout():
    scores, pairs = torch.randn(2, 3, 4, 5), torch.tensor([[1.4, 9.0], [1.1, 0.5], [1.8, 3.0]])
    for alpha in (pairs[:, 0].view(3, 1, 1), pairs[0, :1].expand(3, 1, 1)):
        assert torch.equal(forward(scores, alpha), forward(scores, alpha.contiguous()))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
def test_alpha_of_any_dtype(dtype):
    scores, grad = torch.randn(2, 3, 5)
    alpha = torch.tensor(1.25, dtype=dtype)
    weights = forward(scores, alpha)
    assert torch.equal(weights, forward(scores, alpha.float()))
    dz, da = backward(weights, alpha, grad)
    assert da.dtype == dtype and da.shape == ()
    torch.testing.assert_close(da, reference.entmax_backward(weights, alpha, grad)[1])
    assert torch.equal(dz, backward(weights, alpha, grad, need_alpha=False)[0])
    assert backward(weights, alpha, grad, need_alpha=False)[1] is None


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0), (2, 0, 4)])
def test_no_elements(shape):
    scores, alpha = torch.empty(shape), torch.tensor(1.5)
    weights = forward(scores, alpha)
    dz, da = backward(weights, alpha, scores)
    assert weights.shape == dz.shape == shape and da == 0


# ------------------------------------------------------------------------- special rows


def special_rows():
    nan = float("nan")
    return torch.tensor(
        [
            [-INF] * 5,
            [0.0, nan, 1.0, -INF, 2.0],
            [nan] * 5,
            [1.0, INF, 0.0, 0.0, 0.0],
            [-INF, -INF, 3.0, -INF, -INF],
            [-1e30, 1e30, 0.0, 3e38, -3e38],
            [7.0] * 5,
        ]
    )


def check_special_rows(alpha):
    scores, alpha = special_rows(), torch.tensor(alpha)
    weights = forward(scores, alpha)
    dz, da = backward(weights, alpha, torch.randn(7, 5))
    assert (weights[0] == 0).all() and (dz[0] == 0).all()
    assert weights[1:4].isnan().all() and dz[1:4].isnan().all() and da.isnan()
    assert weights[4].tolist() == [0, 0, 1, 0, 0] and weights[5].tolist() == [0, 0, 0, 1, 0]
    assert (dz[4:6].abs() == 0).all()
    assert_within(weights[6], torch.full((5,), 0.2), 1e-7, "weights")
    proper = [0, 4, 5, 6]
    da = backward(weights[proper], alpha, torch.randn(4, 5))[1]
    assert torch.isfinite(da)


@pytest.mark.parametrize("alpha", (1.0, 1 + 2.0**-23, 1.3, 1.5, 2.0, 3.0))
def test_masked_infinite_and_nan_rows(alpha):
    check_special_rows(alpha)


@pytest.mark.parametrize("alpha", (1.0, 1.3, 3.0))
def test_masked_infinite_and_nan_rows_in_tiles(small_tiles, alpha):
    check_special_rows(alpha)


@pytest.mark.parametrize("alpha", (1.2, 1.5, 3.0))
def test_a_row_does_not_depend_on_its_neighbours(alpha):
    scores = torch.tensor([1e-3, 1.0, 30.0, 1.0, 100.0, 0.1]).view(-1, 1) * torch.randn(6, 20)
    grad, alpha = torch.randn(6, 20), torch.tensor(alpha)
    weights = forward(scores, alpha)
    dz, _ = backward(weights, alpha, grad)
    for first in range(0, 6, 2):
        pair = slice(first, first + 2)
        alone = forward(scores[pair], alpha)
        assert torch.equal(alone, weights[pair])
        assert torch.equal(backward(alone, alpha, grad[pair])[0], dz[pair])


def test_scores_are_not_changed():
    scores, alpha = torch.randn(4, 5, device=DEVICE), torch.tensor(1.5, device=DEVICE)
    before = scores.clone()
    weights = kernels.entmax_forward(scores, alpha)
    grad = torch.ones(4, 5, device=DEVICE)
    kept = weights.clone()
    kernels.entmax_backward(weights, alpha, grad)
    assert torch.equal(scores, before) and torch.equal(weights, kept) and (grad == 1).all()


# ---------------------------------------------------------------------- compilation without a GPU


def compile_calls(device, calls):
    """For each call (dtype, shape, α, offset, need_alpha), the kernels that had to be compiled."""
    compiled = []
    for dtype, shape, alpha, offset, need_alpha in calls:
        device.loaded.clear()
        launches = device.launches
        size = torch.Size(shape).numel()
        scores = torch.zeros(offset + size, dtype=getattr(torch, dtype))[offset:].view(shape)
        alpha = torch.tensor(alpha)
        kernels.entmax_backward(kernels.entmax_forward(scores, alpha), alpha, scores, -1, need_alpha)
        assert device.launches == launches + 2
        compiled.append(list(device.loaded))
    return compiled


RESIDENT = ["_forward_resident", "_backward_resident"]
TILED = ["_forward_tiled", "_backward_tiled"]


@pytest.mark.parametrize("buckets", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_compiles_once_per_bucket(tmp_path, buckets):
    heads = [[[1.5]], [[1.0]], [[3.0]]]
    calls = {
        "first": ["float32", (2, 3, 20, 20), heads, 0, True],
        "multiple of 16": ["float32", (16, 3, 32, 32), heads, 0, True],
        "length 17": ["float32", (2, 3, 17, 17), heads, 0, True],
        "batch of 1": ["float32", (1, 3, 20, 31), heads, 0, True],
        "other α": ["float32", (2, 3, 20, 20), [[[1.1]], [[1.7]], [[2.0]]], 0, True],
        "one α": ["float32", (2, 3, 20, 20), 1.0, 0, True],
        "16 heads": ["float32", (2, 16, 20, 20), [[[1.5]]] * 16, 0, True],
        "address that is not aligned": ["float32", (2, 3, 20, 20), heads, 1, True],
    }
    others = {
        "next bucket": ["float32", (2, 3, 33, 33), heads, 0, True],
        "its end": ["float32", (2, 3, 64, 64), heads, 0, True],
        "one query": ["float32", (2, 3, 1, 20), heads, 0, True],
        "one query, longer": ["float32", (16, 3, 1, 32), heads, 0, True],
        "long": ["float32", (1, 3, 2, 5000), heads, 0, True],
        "longer": ["float32", (2, 3, 1, 16384), heads, 0, True],
    }
    calls |= others if buckets > 1 else {}
    compiled = dict(zip(calls, compiled_apart(__file__, 90, list(calls.values()), tmp_path)))
    new = {"first": RESIDENT, "next bucket": RESIDENT, "one query": RESIDENT, "long": TILED}
    assert compiled == {name: new.get(name, []) for name in calls}


@pytest.mark.nightly
@pytest.mark.parametrize("capability", (80, 90))
def test_every_kernel_compiles(tmp_path, capability):
    lengths = [2**k for k in range(4, 13)]
    calls = [["float32", (1, 1, 2, n), 1.5, 0, True] for n in lengths]
    for dtype in ("float16", "bfloat16", "float64"):
        calls += [[dtype, (1, 1, 2, n), 1.5, 0, True] for n in (16, 256, 4096)]
    expected = [RESIDENT] * len(calls)
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        calls.append([dtype, (1, 1, 2, 5000), 1.5, 0, True])
        expected.append(TILED)
    calls += [["float32", (1, 1, 2, 32), 1.5, 0, False], ["float32", (1, 1, 2, 5000), 1.5, 0, False]]
    expected += [RESIDENT[1:], TILED[1:]]
    assert compiled_apart(__file__, capability, calls, tmp_path) == expected


# ------------------------------------------------------------------------------------ the self-check


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """entmax takes these kernels, unchecked so far, unless they are wrong; rows of more than 40 are long."""
    monkeypatch.delenv("ENTMAX_BACKEND", raising=False)
    monkeypatch.setattr(selection, "_native", lambda device: kernels)
    monkeypatch.setattr(self_check.entmax_check, "_verdicts", {})
    monkeypatch.setattr(kernels, "RESIDENT", 40)
    monkeypatch.setattr(kernels, "TILE", 64)


def used(dtype=torch.float32):
    """The module that entmax came to."""
    alpha = torch.full((1,), 1.5, device=DEVICE).requires_grad_()
    return entmax(torch.randn(2, 7).to(DEVICE, dtype), alpha).grad_fn.implementation


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        *(pytest.param(each, marks=pytest.mark.nightly) for each in (torch.float64, *HALF_TYPES)),
    ],
)
def test_honest_kernels_pass_their_self_check(as_on_a_gpu, dtype, caplog):
    assert used(dtype) is used(dtype) is kernels and not caplog.records


def spoilt(function, place):
    def broken(*args, **options):
        results = function(*args, **options)
        if place is None:
            return results * 1.02
        return tuple(each * 1.02 if i == place else each for i, each in enumerate(results))

    return broken


@pytest.mark.parametrize(
    "function, place, words",
    [
        ("entmax_forward", None, "the weights of 19 scores is off by 0.02"),
        ("entmax_backward", 0, "the gradient of 19 scores is off by 0.02"),
        ("entmax_backward", 1, "the gradient of α with 19 scores is off by 0.02"),
        ("entmax_forward", "raises", "it raised"),
    ],
)
def test_kernels_that_fail_it_are_not_used(as_on_a_gpu, monkeypatch, caplog, function, place, words):
    broken = spoilt(getattr(kernels, function), place) if place != "raises" else lambda *args: 1 / 0
    monkeypatch.setattr(kernels, function, broken)
    assert used() is used() is reference
    assert len(caplog.records) == 1
    assert words in caplog.text and "uses plain torch instead" in caplog.text
    monkeypatch.setenv("ENTMAX_BACKEND", "native")  # by name, unchecked
    if place != "raises":
        assert used() is kernels
