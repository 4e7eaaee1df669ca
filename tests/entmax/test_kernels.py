"""The implementations of α-entmax against oracles, and with extreme scores, α's and gradients."""

import functools
import importlib
import itertools

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

from user_dir.entmax import reference

# Triton's interpreter computes with numpy, which warns about infinities.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.float32, *HALF_TYPES)
ALPHAS = torch.tensor([1.0, 1.001, 1.01, 1.25, 1.5, 1.75, 1.99, 2.0, 2.5, 4.0], dtype=torch.float64)
ALPHAS = ALPHAS.view(-1, 1, 1)


@pytest.fixture(params=("reference", "cpu", "triton"))
def backend(request):
    """The implementing module."""
    if request.param == "triton":
        pytest.importorskip("triton")
    return importlib.import_module(f"user_dir.entmax.{request.param}")


def on_device(backend, *tensors):
    device = "cuda" if backend.__name__.endswith("triton") and torch.cuda.is_available() else "cpu"
    return [tensor.to(device) for tensor in tensors]


def forward(backend, scores, alpha, dim=-1):
    return backend.entmax_forward(*on_device(backend, scores, alpha), dim).cpu()


def backward(backend, weights, alpha, grad, dim=-1, need_alpha=True):
    """The gradients of scores and α."""
    tensors = on_device(backend, weights, alpha, grad)
    dz, da = backend.entmax_backward(*tensors, dim, need_alpha=need_alpha)
    return dz.cpu(), da if da is None else da.cpu()


def run(backend, scores, alpha, grad, need_alpha=True):
    """Weights, and the gradients of scores and α."""
    weights = forward(backend, scores, alpha)
    return weights, *backward(backend, weights, alpha, grad, need_alpha=need_alpha)


# --------------------------------------------------------------------------------- against oracles


def rows_of(n, dtype, scales):
    """Rows of several scales, including ties and a half-masked row."""
    rows = [scale * torch.randn(n, dtype=torch.float64) for scale in scales]
    ties = torch.randn(n, dtype=torch.float64).mul(2).round()
    masked = ties.clone()
    masked[1::2] = -INF
    return torch.stack([*rows, ties, masked]).to(dtype)


@pytest.fixture
def small_tiles(monkeypatch):
    """Makes every row a long one for the Triton kernels, with tiles of 32."""
    kernels = importlib.import_module("user_dir.entmax.triton")
    monkeypatch.setattr(kernels, "RESIDENT", 0)
    monkeypatch.setattr(kernels, "TILE", 32)


def nightly(*case):
    return pytest.param(*case, marks=pytest.mark.nightly)


F32, F64 = torch.float32, torch.float64
SCALES, TWO_SCALES = (1e-3, 1.0, 30.0, 1e4), (1.0, 30.0)
PLAIN = itertools.product(("reference", "cpu"), (1, 16, 257), (F32, F64), (SCALES,))
LONG = itertools.product(("reference", "cpu"), (4096,), (F32, F64), ((1.0,),))
SIZES = [
    *PLAIN,
    *LONG,
    *(("triton", n, F32, SCALES) for n in (1, 3)),
    ("triton", 2, F64, SCALES),
    ("triton", 100, F32, (1.0,)),
    *(nightly("triton", n, F32, SCALES) for n in (2, 16, 17, 33)),
    *(nightly("triton", n, F32, TWO_SCALES) for n in (100, 257, 1000, 4096, 5000)),
    *(nightly("triton", n, F64, TWO_SCALES) for n in (17, 257, 5000)),
    nightly("triton", 16384, F32, ()),
]


@pytest.mark.parametrize("backend, n, dtype, scales", SIZES, indirect=["backend"])
def test_against_bisection(backend, n, dtype, scales):
    check_against_bisection(backend, n, dtype, scales)


@pytest.mark.parametrize("dtype", (F64, F32))
def test_a_score_at_the_edge_of_the_support_does_not_prevent_convergence(dtype, backend):
    """For 1.5 < α < 2, p″ is infinite there, so that one row of 10,000 leads a third-order method astray."""
    if not backend.__name__.endswith("triton"):  # whose interpreter would take minutes for so many
        scores, alpha = torch.randn(60_000, 20, dtype=dtype), 1.7 + 0.29 * torch.rand(60_000, 1, dtype=dtype)
        sums = forward(backend, scores / 2, alpha).sum(-1)
        assert_within(sums, torch.ones_like(sums), 20 * torch.finfo(dtype).eps, "sums")
    row = [1.3580596149947095, 0.36923995228088685, 0.39984988714536224, -0.055769452322667584]
    row += [-0.28986724262755453, -0.13934603054989766, 0.09960940871020743, 0.009252204669150332]
    scores, alpha = torch.tensor([[*row, 0.39396844045697704]], dtype=dtype), 1.7939970540341892
    expected = entmax_oracle(scores, alpha)
    weights = forward(backend, scores, torch.full((1, 1), alpha, dtype=F64))
    assert_within(weights, expected, weight_tolerance(expected, scores, alpha), "weights")


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["triton"], indirect=True)
def test_tiles_against_bisection(backend, small_tiles):
    check_against_bisection(backend, 40, F32, (1.0,))


def check_against_bisection(backend, n, dtype, scales):
    rows = rows_of(n, dtype, scales)
    scores = torch.stack([rows[:, torch.randperm(n)] for _ in ALPHAS])
    grad = torch.randn_like(scores)
    weights, dz, da = run(backend, scores, ALPHAS, grad)
    assert weights.dtype == dz.dtype == dtype and da.dtype == torch.float64

    expected = entmax_oracle(scores, ALPHAS)
    expected_dz, expected_da, _ = entmax_oracle_gradients(expected, ALPHAS, grad)
    dz_tolerance, da_tolerance = gradient_tolerances(expected, scores, ALPHAS, grad)
    assert_within(weights, expected, weight_tolerance(expected, scores, ALPHAS), "weights")
    # a score's gradient is a share w of the span; for α > 2 it can exceed 1, and so can its rounding error
    share = torch.where(expected > 0, expected.clamp(min=1e-300).pow(2 - ALPHAS), 0.0).clamp(min=1)
    assert_within(dz, expected_dz, dz_tolerance * share, "gradient of scores")
    # the second term: errors of the oracle by cancellation
    cancelled = 1e-15 * len(rows) / (ALPHAS - 1).clamp(min=1e-3).square()
    tolerance = da_tolerance.sum((1, 2), keepdim=True) + cancelled
    assert_within(da, expected_da.sum((1, 2), keepdim=True), tolerance, "gradient of α")


@functools.cache
def in_sixty_digits(alpha, dtype):
    """Two rows of scores, a gradient, and from them the weights and the gradients of scores and α."""
    scores = torch.tensor([[0.1], [3.0]]) * torch.randn(2, 7)
    scores[:, 3] = -INF
    scores, grad = scores.to(dtype), torch.randn(2, 7).to(dtype)
    rows = scores.tolist()
    weights = torch.tensor([[float(x) for x in mp_entmax(z, alpha)] for z in rows], dtype=F64)
    gradients = [mp_entmax_gradients(z, alpha, g) for z, g in zip(rows, grad.tolist())]
    dz, da = zip(*gradients)
    return scores, grad, (weights, torch.tensor(dz, dtype=F64), torch.tensor(sum(da), dtype=F64))


EXACT = (1.0, 1 + 1e-7, 1 + 1e-5, 1.001, 1.01, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)


@pytest.mark.parametrize("case", each_once(alpha=EXACT, dtype=(F64, F32)))
def test_against_sixty_digits(case, backend):
    alpha, dtype = case.values()
    scores, grad, expected = in_sixty_digits(alpha, dtype)
    a = torch.tensor(alpha, dtype=F64)
    weights, dz, da = run(backend, scores, a, grad)
    dz_tolerance, da_tolerance = gradient_tolerances(expected[0], scores, a, grad)
    assert_within(weights, expected[0], weight_tolerance(expected[0], scores, a), "weights")
    assert_within(dz, expected[1], dz_tolerance, "gradient of scores")
    assert_within(da, expected[2], da_tolerance.sum(), "gradient of α")
    if dtype == F64 and alpha <= 2:
        torch.testing.assert_close(weights, expected[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_half_precision_is_computed_in_float32(dtype, backend):
    alpha = torch.tensor([1.0, 1.0001, 1.5, 1.9, 3.0]).view(-1, 1, 1)
    scores = (4 * torch.randn(5, 3, 50)).to(dtype)
    scores[:, 1, 25:] = -INF
    grad = torch.randn(5, 3, 50).to(dtype)
    weights, dz, da = run(backend, scores, alpha, grad)
    assert weights.dtype == dz.dtype == dtype and da.dtype == torch.float32

    rounding, least = half_a_unit(dtype)
    expected = entmax_oracle(scores.float(), alpha)
    tolerance = weight_tolerance(expected, scores.float(), alpha)
    assert_within(weights, expected, rounding * expected + least + tolerance, "weights")
    # The backward pass starts from the rounded weights.
    expected_dz, expected_da = reference.entmax_backward(weights.double(), alpha.double(), grad.double())
    dz_tolerance = rounding * expected_dz.abs() + least + 1e-5 * expected_dz.abs().max()
    assert_within(dz, expected_dz, dz_tolerance, "gradient of scores")
    _, da_tolerance = gradient_tolerances(weights.double(), scores.float(), alpha, grad)
    assert_within(da, expected_da, da_tolerance.sum((1, 2), keepdim=True), "gradient of α")


def half_a_unit(dtype):
    """Half a unit in the last place, relative, and the unit of subnormals.

    A whole unit of bfloat16, which Triton's interpreter truncates.
    """
    info = torch.finfo(dtype)
    return info.eps * (0.5 if dtype != torch.bfloat16 else 1.0), info.smallest_normal * info.eps


# ------------------------------------------------------------------------- any layout, shape and dtype


LAYOUTS = {
    "last": ((2, 3, 4, 5), -1, lambda x: x),
    "first": ((6, 4), 0, lambda x: x),
    "middle": ((2, 5, 3), 1, lambda x: x),
    "transposed": ((2, 3, 6), -1, lambda x: x.transpose(0, 2).contiguous().transpose(0, 2)),
    "strided": ((3, 6), -1, lambda x: torch.stack([x, x], -1).flatten(-2)[:, ::2]),
    "expanded": ((3, 6), 0, lambda x: x[:, :1].expand(3, 6)),
    "no dimension": ((), -1, lambda x: x),
}
NATIVE = pytest.mark.parametrize("backend", ("cpu", "triton"), indirect=True)


def check_against_reference(backend, scores, alpha, grad, dim, view=lambda x: x):
    expected = reference.entmax_forward(scores, alpha, dim)
    assert_within(forward(backend, scores, alpha, dim), expected, 1e-6, "weights")
    expected = view(expected)
    dz, da = backward(backend, expected, alpha, grad, dim)
    expected_dz, expected_da = reference.entmax_backward(expected, alpha, grad, dim)
    assert_within(dz, expected_dz, 1e-5, "gradient of scores")
    assert_within(da, expected_da, 1e-5 * (1 + expected_da.abs()), "gradient of α")


@NATIVE
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(layout, backend):
    shape, dim, view = LAYOUTS[layout]
    scores, grad = view(torch.randn(shape)), view(torch.randn(shape))
    check_against_reference(backend, scores, torch.tensor(1.3), grad, dim, view)


SHAPES = [(), (1,), (3, 1, 1), (4, 1), (2, 3, 4, 1), (2, 1, 1, 1), (2, 1, 4, 1), (3, 4, 1), (2, 3, 1, 1)]


@NATIVE
@pytest.mark.parametrize("case", each_once(shape=SHAPES, dim=(-1, 1)))
def test_any_shape_of_alpha(case, backend):
    shape, dim = case.values()
    # for dim 1, the sizes 3 and 5 are swapped in scores and α
    alpha = 1.1 + torch.rand(shape)
    scores, grad = torch.randn(2, 2, 3, 4, 5)
    if dim == 1:
        scores, grad = scores.transpose(1, 3), grad.transpose(1, 3)
        alpha = alpha.view((1,) * (4 - alpha.dim()) + alpha.shape).transpose(1, 3)
    check_against_reference(backend, scores, alpha, grad, dim)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
def test_alpha_of_any_dtype(dtype, backend):
    scores, grad = torch.randn(2, 3, 5)
    alpha = torch.tensor(1.25, dtype=dtype)
    before = scores.clone(), grad.clone()
    weights, dz, da = run(backend, scores, alpha, grad)
    assert torch.equal(weights, forward(backend, scores, alpha.float()))
    assert da.dtype == dtype and da.shape == ()
    expected = reference.entmax_backward(weights, alpha, grad)[1]
    computed_in = torch.float32 if dtype == torch.float64 else dtype  # that of the scores
    torch.testing.assert_close(da.to(computed_in), expected.to(computed_in))
    kept = weights.clone()
    same, nothing = backward(backend, weights, alpha, grad, need_alpha=False)
    assert torch.equal(dz, same) and nothing is None
    assert all(map(torch.equal, (scores, grad, weights), (*before, kept))), "inputs are changed"


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0), (2, 0, 4)])
def test_no_elements(shape, backend):
    scores = torch.empty(shape)
    weights, dz, da = run(backend, scores, torch.tensor(1.5), scores)
    assert weights.shape == dz.shape == shape and da == 0


# ------------------------------------------------------------------------------------ special rows


def check_special_rows(backend, alpha):
    scores = torch.tensor(
        [
            [-INF] * 5,
            [0.0, NAN, 1.0, -INF, 2.0],
            [NAN] * 5,
            [1.0, INF, 0.0, 0.0, 0.0],
            [-INF, -INF, 3.0, -INF, -INF],
            [-1e30, 1e30, 0.0, 3e38, -3e38],
            [7.0] * 5,
        ]
    )
    alpha = torch.tensor(alpha)
    weights, dz, da = run(backend, scores, alpha, torch.randn(7, 5))
    assert (weights[0] == 0).all() and (dz[0] == 0).all()
    assert weights[1:4].isnan().all() and dz[1:4].isnan().all() and da.isnan()
    assert weights[4].tolist() == [0, 0, 1, 0, 0] and weights[5].tolist() == [0, 0, 0, 1, 0]
    assert (dz[4:6].abs() == 0).all()
    assert_within(weights[6], torch.full((5,), 0.2), 1e-7, "weights")
    da = backward(backend, weights[[0, 4, 5, 6]], alpha, torch.randn(4, 5))[1]
    assert torch.isfinite(da)


@pytest.mark.parametrize("alpha", (1.0, 1 + 2.0**-23, 1.3, 1.5, 2.0, 3.0))
def test_masked_infinite_and_nan_rows(alpha, backend):
    check_special_rows(backend, alpha)


@pytest.mark.parametrize("backend", ["triton"], indirect=True)
@pytest.mark.parametrize("alpha", (1.0, 1.3, pytest.param(3.0, marks=pytest.mark.nightly)))
def test_masked_infinite_and_nan_rows_in_tiles(alpha, small_tiles, backend):
    check_special_rows(backend, alpha)


NEAR_ONE = [1 + 1e-7, *(1 + 2.0**-k for k in (12, 16, 20, 23, 30, 52))]
BOTH_ENDS = torch.tensor(
    [1.0, *NEAR_ONE, *(1 + 2.0**-k for k in (9, 6, 3, 1)), 2 - 2.0**-23, 2 - 2.0**-52, 2.0],
    dtype=torch.float64,
).view(-1, 1, 1)


def extreme_rows(dtype, n=9):
    """Rows of extreme values of a dtype; the last but one is entirely masked."""
    kind = torch.finfo(dtype)
    big, normal, least = kind.max, kind.smallest_normal, kind.smallest_normal * kind.eps
    rows = torch.zeros(12, n, dtype=torch.float64)
    rows[0] = big
    rows[1] = -big
    rows[2] = torch.tensor([big, -big, 0.0]).repeat(n // 3)
    rows[3] = torch.tensor([-big, -INF, -INF]).repeat(n // 3)
    rows[4] = -INF
    rows[4, 2] = big
    rows[5, 3] = big
    rows[6] = 0.3
    rows[7] = normal * torch.linspace(0, 1, n)
    rows[8] = least * torch.arange(n)
    rows[9] = torch.linspace(-1, 1, n)
    rows[10] = -INF
    rows[11, ::2] = -normal
    return rows.to(dtype)


@pytest.mark.parametrize(
    "backend, dtype",
    [
        *itertools.product(("reference", "cpu"), DTYPES),
        *itertools.product(("triton",), (F32, torch.bfloat16)),
        nightly("triton", torch.float16),
    ],
    indirect=["backend"],
)
def test_extreme_scores(dtype, backend):
    rows = extreme_rows(dtype)
    scores = rows.expand(len(BOTH_ENDS), *rows.shape).contiguous()
    grad = torch.randn_like(scores)
    weights, dz, da = run(backend, scores, BOTH_ENDS, grad)

    # close to α = 1, where bisection cancels, use the limit: the error of weights is at most about ε log² p
    expected = entmax_oracle(scores, torch.where(BOTH_ENDS < 1.001, 1.0, BOTH_ENDS))
    limit = torch.where(BOTH_ENDS < 1.001, 8 * (BOTH_ENDS - 1), 0.0)
    rounding, least = half_a_unit(dtype)
    assert_within(weights, expected, rounding * expected + least + 1e-6 + limit, "weights")
    assert (weights[scores == -INF] == 0).all() and (dz[scores == -INF] == 0).all()

    # The backward pass starts from the rounded weights.
    exact_dz, exact_da = reference.entmax_backward(weights.double(), BOTH_ENDS, grad.double())
    tolerance = rounding * exact_dz.abs() + least + 1e-5 * grad.double().abs().amax(-1, keepdim=True)
    assert_within(dz, exact_dz, tolerance, "gradient of scores")
    assert_within(da, exact_da, 1e-4 * len(rows) * grad.double().abs().max(), "gradient of α")


@pytest.mark.parametrize(
    "case",
    each_once(
        alpha=(1.0, 1 + 2.0**-20, 1.3, 1.5, 2.0), value=(INF, -INF, NAN), dtype=(torch.float32, torch.float16)
    ),
)
def test_an_overflow_in_the_gradient_propagates_within_its_row_only(case, backend):
    alpha, value, dtype = case.values()
    scores = torch.tensor([[0.1, 0.0, -0.2, -90.0], [0.3, 0.2, -INF, 0.0], [-INF] * 4]).to(dtype)
    grad = torch.randn(3, 4).to(dtype)
    grad[0, 1] = value
    _, dz, da = run(backend, scores, torch.tensor(alpha), grad)
    assert not dz[0, :3].isfinite().any() and not da.isfinite()
    assert dz[1].isfinite().all() and (dz[2] == 0).all()
