"""The fused GPU kernels, run on a GPU or in Triton's interpreter, and compiled without a GPU."""

from contextlib import nullcontext

import pytest
import torch
from helpers import HALF_TYPES, batch, build, computed
from no_gpu import compiled_apart

pytest.importorskip("triton")

import triton.language as tl
from no_gpu import take_triton_kernels
from strict_interpreter import strict

from user_dir.attention import AttentionInputs, cpu, triton
from user_dir.attention.dense import dense_attention
from user_dir.attention.fused import in_heads
from user_dir.attention.inputs import KernelInputs
from user_dir.attention.triton import kernels, launching, tiles

# The interpreter computes with numpy, which warns about infinities that the kernels handle.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ALPHAS = (1.0, 1.5, 1.9, 2.0)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = (torch.float32, *HALF_TYPES)
INF = float("inf")
# Largest error relative to the largest entry. In half precision, weights and gradients of scores are rounded
# before multiplication; the interpreter truncates bfloat16, while a GPU rounds.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def oracle(monkeypatch):
    """The oracle: plain torch in float64; the kernels are there although ENTMAX_BACKEND=reference."""
    monkeypatch.setenv("ENTMAX_BACKEND", "reference")
    monkeypatch.setattr(triton.KERNEL, "unavailable", lambda: None)


@pytest.fixture
def strictly(monkeypatch):
    """In the interpreter: what may go wrong on a GPU only is an error."""
    with nullcontext() if DEVICE == "cuda" else strict(monkeypatch):
        yield


@pytest.fixture
def small_tiles(monkeypatch):
    """Makes rows of more than 16 keys long ones, with tiles of 16."""
    kernels._kept_call.cache_clear()
    monkeypatch.setattr(kernels, "RESIDENT", 16)
    for name in ("ONE_KERNEL", "TILE"):
        monkeypatch.setattr(kernels, name, {2: 16, 4: 16})


def projections(queries, keys, head_dim, dtype=torch.float32, heads=4, count=2):
    """Leaves (T, B, H·D) as output by a linear layer, and their views (B, H, T, D)."""
    leaves, views = [], []
    for length in (queries, keys, keys):
        leaf = (1.5 * torch.randn(length, count, heads * head_dim)).to(DEVICE, dtype).requires_grad_()
        leaves.append(leaf)
        views.append(leaf.view(length, count, heads, head_dim).permute(1, 2, 0, 3))
    return leaves, views


def padding(kind, keys, count=2):
    """None, or: the first sentence has full length, the second half of it, or (``all``) nothing."""
    if kind is None:
        return None
    visible = {"left": keys - keys // 2, "right": keys - keys // 2, "all": 0}[kind]
    mask = torch.arange(keys) >= torch.tensor([keys] + [visible] * (count - 1))[:, None]
    return (mask.flip(1) if kind == "left" else mask).to(DEVICE)


def kept_weights(queries, keys, dropout, seed, heads=4, count=2):
    """The mask (B, H, T, S) drawn by dropout, made visible by equal weights and unit vectors as values."""
    q = torch.zeros(count, heads, queries, max(16, keys), device=DEVICE)
    v = torch.eye(keys, q.size(3), device=DEVICE).expand(count, heads, keys, -1)
    torch.manual_seed(seed)
    output, _ = computed(triton.KERNEL.compute, q, torch.zeros_like(v), v, 1.0, dropout=dropout)
    return output[..., :keys] > 0


def in_float64(views, alpha, mask=None, causal=False, kept=None, dropout=0.0):
    """Output of dense attention with a given mask instead of dropout."""
    output, weights = computed(dense_attention, *views, alpha, mask, None, causal, need_weights=True)
    return output if kept is None else (weights * kept / (1 - dropout)) @ views[2]


def check(queries, keys, head_dim, pad=None, causal=False, dropout=0.0, dtype=torch.float32):
    """Output and all four gradients against dense attention in float64 from the same inputs."""
    leaves, views = projections(queries, keys, head_dim, dtype)
    alpha = torch.tensor(ALPHAS, device=DEVICE).view(-1, 1, 1).requires_grad_()
    mask = padding(pad, keys)
    grad = torch.randn(views[0].shape).to(DEVICE, dtype)
    kept = kept_weights(queries, keys, dropout, seed=5) if dropout else None
    torch.manual_seed(5)
    output, weights = computed(triton.KERNEL.compute, *views, alpha, mask, causal=causal, dropout=dropout)
    assert weights is None and output.dtype == dtype and output.shape == views[0].shape
    grads = torch.autograd.grad(output, (*leaves, alpha), grad)

    exact = [view.detach().double().requires_grad_() for view in (*views, alpha)]
    expected = in_float64(exact[:3], exact[3], mask, causal, kept, dropout)
    expected_grads = torch.autograd.grad(expected, exact, grad.double())
    as_leaves = [g.permute(2, 0, 1, 3).reshape(leaf.shape) for g, leaf in zip(expected_grads, leaves)]
    close("output", output, expected, TOLERANCE[dtype])
    for name, actual, other in zip(("query", "key", "value"), grads, as_leaves):
        assert actual.dtype == dtype
        close(f"gradient of {name}", actual, other, TOLERANCE[dtype])
    # all terms of α's gradient are in float32, whatever the dtype of the inputs
    close("gradient of α", grads[3], expected_grads[3], 1e-5 if dtype == torch.float32 else 1e-3)


def close(what, actual, expected, tolerance):
    assert actual.isfinite().all(), what
    error = (actual.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-9)
    assert error <= tolerance, f"{what}: off by {error:.2g} of the greatest entry, more than {tolerance:g}"


# ------------------------------------------------------------------------------ against dense attention


@pytest.mark.parametrize(
    "case",
    [
        {"queries": 1, "keys": 7, "head_dim": 16},
        pytest.param({"queries": 5, "keys": 1, "head_dim": 20, "pad": "all"}, marks=pytest.mark.nightly),
        {"queries": 20, "keys": 20, "head_dim": 32, "pad": "left", "causal": True},
        {"queries": 19, "keys": 18, "head_dim": 16, "pad": "right", "dropout": 0.3},
        {"queries": 18, "keys": 20, "head_dim": 24, "pad": "right", "dtype": torch.bfloat16},
    ],
    ids=str,
)
def test_short_rows(case, strictly):
    check(**case)


# Two and three widths of the forward's tile, and half of the keys in the backward, for the first queries.
@pytest.mark.parametrize(
    "case",
    [
        {"queries": 31, "keys": 31, "head_dim": 16, "pad": "left", "dropout": 0.25},
        pytest.param({"queries": 17, "keys": 17, "head_dim": 24, "pad": "all"}, marks=pytest.mark.nightly),
        pytest.param(
            {"queries": 50, "keys": 50, "head_dim": 16, "dtype": torch.bfloat16}, marks=pytest.mark.nightly
        ),
        pytest.param({"queries": 60, "keys": 60, "head_dim": 16, "pad": "right"}, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_short_causal_rows(case, strictly, monkeypatch):
    kernels._kept_call.cache_clear()
    monkeypatch.setattr(kernels, "ONE_KERNEL", {2: 64, 4: 64})
    for name in ("QUERIES", "BACKWARD_QUERIES"):
        monkeypatch.setattr(kernels, name, {32: 16, 64: 16})
    check(**case, causal=True)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            {
                "queries": 5,
                "keys": 20,
                "head_dim": 16,
                "pad": "left",
                "dropout": 0.25,
                "dtype": torch.float16,
            },
            marks=pytest.mark.nightly,
        ),
        {"queries": 17, "keys": 17, "head_dim": 16, "pad": "right", "causal": True, "dtype": torch.bfloat16},
        pytest.param({"queries": 20, "keys": 20, "head_dim": 16, "causal": True}, marks=pytest.mark.nightly),
        pytest.param(
            {"queries": 17, "keys": 18, "head_dim": 16, "pad": "all", "dtype": torch.bfloat16},
            marks=pytest.mark.nightly,
        ),
    ],
    ids=str,
)
def test_long_rows(case, small_tiles, strictly):
    check(**case)


ON_A_GPU = () if DEVICE == "cuda" else pytest.mark.nightly  # which is quick there


@pytest.mark.nightly
@pytest.mark.parametrize("size", ((140, 120, 16), (20, 270, 16)))
def test_real_tiles(size):
    check(*size, pad="left")


@pytest.mark.parametrize(
    "length, dtype",
    [
        *(pytest.param(length, torch.bfloat16, marks=ON_A_GPU) for length in (125, 250)),
        *(pytest.param(length, torch.float32, marks=pytest.mark.nightly) for length in (60, 125, 250)),
    ],
)
def test_real_tiles_of_causal_rows(length, dtype):
    check(length, length, 64, pad="left", causal=True, dtype=dtype)


# From ε = 2⁻⁸ to ½, Halley's method finds λ; 1 / 0.49999997 rounds to 2, and ½ needs no powers.
@pytest.mark.nightly
@pytest.mark.parametrize("width, long", ((0.3, True), (0.0, False), (8.0, False)))
def test_any_alpha_in_half_precision(width, long, request):
    if long:
        request.getfixturevalue("small_tiles")
    alpha = torch.tensor([1.003, 1.004, 1.05, 1.2, 1.45, 1.49999997, 1.5, 1.51, 1.7, 1.99], device=DEVICE)
    alpha = alpha.double().view(-1, 1, 1)
    leaves, (q, k, v) = projections(17, 30, 16, torch.float16, heads=10, count=1)
    with torch.no_grad():
        leaves[0] *= width
    output, _ = computed(triton.KERNEL.compute, q, k, v, alpha)
    expected = in_float64([view.detach().double() for view in (q, k, v)], alpha)
    close("output", output, expected, 2e-3)


@pytest.mark.nightly
def test_one_alpha_for_all_heads():
    _, views = projections(5, 9, 16, heads=3)
    results, grads = [], []
    for alpha in (torch.full((1, 1, 1), 1.4), torch.full((3, 1, 1), 1.4), torch.tensor(1.4)):
        alpha = alpha.to(DEVICE).requires_grad_()
        output, _ = computed(triton.KERNEL.compute, *views, alpha)
        grads.append(torch.autograd.grad(output.square().sum(), alpha)[0])
        assert grads[-1].shape == alpha.shape
        results.append(output)
    results.append(computed(triton.KERNEL.compute, *views, torch.tensor(1.4).item())[0])
    assert all(torch.equal(result, results[0]) for result in results[1:])
    torch.testing.assert_close(grads[0].sum(), grads[1].sum())
    torch.testing.assert_close(grads[2], grads[1].sum())


# ----------------------------------------------------------------------------- tiles without weights


def blocks(dtype=torch.float32):
    """Inputs of three heads, 64 queries and keys in blocks of 16; only within blocks are scores high."""
    place = 5 * torch.nn.functional.one_hot(torch.arange(64) // 16, 16)
    q, k, v, grad = (torch.randn(1, 3, 64, 16) for _ in range(4))
    return [x.to(DEVICE, dtype) for x in (0.3 * q + place, 0.3 * k + place, v, grad)]


def forward_and_backward(q, k, v, grad, causal=False, then=lambda x: x):
    """Output, gradients and flags; between forward and backward, ``then`` changes the tensors."""
    alpha = torch.tensor([1.0, 1.5, 2.0], device=DEVICE).view(-1, 1, 1)
    inputs = KernelInputs(q, k, v, alpha, None, None, causal, 0.0, None)
    output, _, saved = triton.KERNEL.forward(inputs, need_weights=False, save=True)
    inputs = inputs._replace(query=then(q), key=then(k), value=then(v))
    grads = triton.KERNEL.backward(inputs, saved, then(grad), None, need_alpha=True)
    return in_heads(output), *grads[:3], grads[3].repeat_interleave(16, 2), saved[1].bool()


def poisoned(x):
    """The last block is invalid."""
    return torch.cat((x[:, :, :48], torch.full_like(x[:, :, 48:], float("nan"))), 2)


# With 2 slots, two tiles share a flag.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "slots, causal, dtype",
    (
        (2, True, torch.bfloat16),
        (64, False, torch.float32),
        (64, True, torch.float16),
        (2, False, torch.float32),
    ),
)
def test_tiles_without_weights_are_not_loaded(small_tiles, monkeypatch, slots, causal, dtype):
    monkeypatch.setattr(tiles, "SLOTS", tl.constexpr(slots))
    q, k, v, grad = blocks(dtype)
    *results, flags = forward_and_backward(q, k, v, grad, causal)
    per_slot = -(-4 // slots)  # tiles of a slot
    own = torch.eye(4, dtype=torch.bool, device=DEVICE).unflatten(1, (-1, per_slot)).any(2)
    visible = own.int().cummax(0)[0].bool() if causal else torch.ones_like(own)
    assert torch.equal(flags[1:] & visible, own.expand(2, -1, -1))
    assert flags[0][visible].all()  # α = 1: every key has weight

    # heads with α > 1 read nothing of the last block for the others: neither values, nor in the backward
    clean = 64 - 16 * per_slot
    others = forward_and_backward(q, k, poisoned(v), grad, causal, poisoned)[:-1]
    for actual, other in zip(results, others):
        assert torch.equal(actual[:, 1:, :clean], other[:, 1:, :clean])
        assert other[:, 1:, 48:].isnan().all() and (causal or other[:, 0].isnan().all())

    monkeypatch.setattr(tiles, "NO_WEIGHT", -INF)  # all tiles are visited
    assert all(map(torch.equal, results, forward_and_backward(q, k, v, grad, causal)))

    exact = [x.double().requires_grad_() for x in (q, k, v)]
    alpha = torch.tensor([1.0, 1.5, 2.0], device=DEVICE).double().view(-1, 1, 1).requires_grad_()
    output = in_float64(exact, alpha, causal=causal)
    for actual, truth in zip(results, (output, *torch.autograd.grad(output, exact, grad.double()))):
        close("output or gradient", actual, truth.detach(), TOLERANCE[dtype])


@pytest.mark.parametrize("place", (20, pytest.param(39, marks=pytest.mark.nightly)))
def test_an_invalid_key_beside_masked_ones_is_not_skipped(small_tiles, strictly, place):
    _, views = projections(3, 40, 16, count=1)
    q, k, v = (view.detach() for view in views)
    k[:, :, place] = float("nan")
    mask = torch.arange(40, device=DEVICE).ne(place)[None]
    alpha = torch.tensor(ALPHAS, device=DEVICE).view(-1, 1, 1)
    for dropout in (0.0, 0.1):
        output, _ = computed(triton.KERNEL.compute, q, k, v, alpha, mask, dropout=dropout)
        assert output.isnan().all()


# ---------------------------------------------------------------------------------- special rows


@pytest.mark.parametrize("long, dtype", ((False, torch.float16), (True, torch.float32)))
def test_an_invalid_query_propagates_within_its_row_only(long, dtype, request):
    if long:
        request.getfixturevalue("small_tiles")
    _, views = projections(18, 20, 16, dtype, count=1)
    q, k, v = (view.detach().clone() for view in views)
    q[0, 2, 17, 3] = float("nan")
    alpha = torch.tensor(ALPHAS, device=DEVICE).view(-1, 1, 1)
    output, _ = computed(triton.KERNEL.compute, q, k, v, alpha)
    assert output[0, 2, 17].isnan().all()
    output[0, 2, 17] = 0
    assert output.isfinite().all()


@pytest.mark.nightly
def test_any_layout():
    together = torch.randn(9, 2, 3, 3, 16, device=DEVICE)  # (T, B, 3, H, D): queries, keys, values
    q, k, v = together.unbind(2)
    q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
    expected, _ = computed(triton.KERNEL.compute, *(x.contiguous() for x in (q, k, v)), 1.4)
    assert torch.equal(computed(triton.KERNEL.compute, q, k, v, 1.4)[0], expected)
    backwards = [x.flip(3).transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k)]
    close("output", computed(triton.KERNEL.compute, *backwards, v, 1.4)[0], expected.double(), 1e-5)
    assert expected.permute(2, 0, 1, 3).is_contiguous()  # (T, B, H, D), as projected
    pairs = torch.tensor([[1.4, 9.0], [1.1, 0.5], [1.8, 3.0]], device=DEVICE)
    for alpha in (pairs[:, 0].view(3, 1, 1), pairs[0, :1].expand(3, 1, 1)):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        results = []
        for a in (alpha, alpha.contiguous()):
            output, _ = computed(triton.KERNEL.compute, *leaves, a)
            results.append((output, *torch.autograd.grad(output.sum(), leaves)))
        assert all(map(torch.equal, *results))


def test_the_output_can_be_modified_in_place_but_not_differentiated_twice():
    leaves, views = projections(5, 5, 16, heads=1, count=1)
    output, _ = computed(triton.KERNEL.compute, *views, 1.4)
    (expected,) = torch.autograd.grad((2 * output).square().sum(), leaves[0])
    output, _ = computed(triton.KERNEL.compute, *views, 1.4)
    output *= 2
    (actual,) = torch.autograd.grad(output.square().sum(), leaves[0], retain_graph=True)
    close("gradient", actual, expected.double(), 1e-6)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(output.sum(), leaves[0], create_graph=True)


def test_dropout_drops_the_expected_share():
    kept = kept_weights(32, 64, 0.3, seed=1)
    count = kept.numel()
    assert abs(kept.float().mean().item() - 0.7) < 5 * (0.3 * 0.7 / count) ** 0.5
    # neighbours along each dimension agree as often as distant entries
    for dim in range(4):
        same = (kept.narrow(dim, 1, kept.size(dim) - 1) == kept.narrow(dim, 0, kept.size(dim) - 1)).float()
        assert abs(same.mean().item() - 0.58) < 6 * (0.58 * 0.42 / same.numel()) ** 0.5
    assert not torch.equal(kept, kept_weights(32, 64, 0.3, seed=2))
    assert torch.equal(kept, kept_weights(32, 64, 0.3, seed=1))


@pytest.mark.nightly
def test_a_replay_of_the_kernels_drops_by_the_seed_that_is_then_on_the_device(small_tiles):
    views = projections(18, 20, 16, torch.float32, heads=1, count=1)[1]
    seed = torch.tensor(1, device=DEVICE)
    alpha = torch.full((1,), 1.4, dtype=torch.float64, device=DEVICE)
    inputs = KernelInputs(*views, alpha, None, None, False, 0.3, seed)
    results = []
    for drawn in (1, 2, 1):
        seed.fill_(drawn)
        output, _, saved = triton.KERNEL.forward(inputs, need_weights=False, save=True)
        grad = torch.ones_like(views[0])
        results.append((output, *triton.KERNEL.backward(inputs, saved, grad, None, need_alpha=False)[:3]))
    first, second, again = results
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in zip(first, again, second))


# ------------------------------------------------------------------------------------------ launching


class Recorded:
    """A kernel with the parameters a, b, M and N, and what Triton compiles of it; records its launches."""

    arg_names = ("a", "b", "M", "N")

    def __init__(self):
        self.compiled, self.launches = 0, []

    def __getitem__(self, grid):
        def launch(*arguments, M, N, num_warps):
            self.compiled += 1
            self.launches.append((grid, *arguments, M, N))
            return {grid: lambda *args: self.launches.append((grid, *args))}

        return launch


@pytest.mark.parametrize("direct", (False, True))
def test_launches_of_compiled_kernels(monkeypatch, direct):
    monkeypatch.setattr(launching, "DIRECT", direct)
    monkeypatch.setattr(launching, "_compiled", {})
    kernel, grid = Recorded(), (2, 1, 1)
    whole = torch.zeros(32)

    def launch(a, b, rows=16):
        launching.run(kernel, grid, [a, b], {"N": 8, "M": rows}, {"num_warps": 1})
        assert kernel.launches[-1] == (grid, a, b, rows, 8)
        return kernel.compiled

    first = launch(whole, 3)
    assert launch(whole, 4) - first == (0 if direct else 1)
    # what Triton compiles anew: other types, alignments, missing tensors, wide integers, constants
    for arguments in ((whole.double(), 3), (whole[1:], 3), (whole, None), (whole, 2**31), (whole, 3, 32)):
        before = kernel.compiled
        assert launch(*arguments) == before + 1
        assert launch(*arguments) - before == (1 if direct else 2)


# ------------------------------------------------------------------------------------------ decoding


@pytest.mark.parametrize("keys, dtype", ((20, torch.float32), (40, torch.bfloat16)))
def test_a_decoding_step(keys, dtype, strictly, request):
    if keys > 20:
        request.getfixturevalue("small_tiles")
    check_step(keys, dtype)


@pytest.mark.parametrize(
    "keys, dtype",
    [
        pytest.param(300, torch.bfloat16, marks=ON_A_GPU),
        *(pytest.param(5000, dtype, marks=pytest.mark.nightly) for dtype in DTYPES),
    ],
)
def test_a_decoding_step_of_many_keys(keys, dtype):
    check_step(keys, dtype)


def check_step(keys, dtype):
    _, views = projections(1, keys, 24, dtype)
    alpha = torch.tensor(ALPHAS, device=DEVICE).view(-1, 1, 1)
    mask = padding("right", keys)
    with torch.no_grad():
        output, weights = computed(triton.KERNEL.compute, *views, alpha, mask, need_weights=True)
        exact = [view.double() for view in views]
        expected, expected_weights = computed(
            dense_attention, *exact, alpha.double(), mask, need_weights=True
        )
    assert output.dtype == weights.dtype == dtype and weights.shape == expected_weights.shape
    close("output", output, expected, TOLERANCE[dtype])
    close("weights", weights, expected_weights, TOLERANCE[dtype])
    none = (weights == 0) & (expected_weights == 0)  # in float16, small weights are rounded to 0
    values = views[2].detach().masked_fill(none.transpose(2, 3), float("nan"))
    with torch.no_grad():
        again, _ = computed(triton.KERNEL.compute, *views[:2], values, alpha, mask)
    assert torch.equal(again, output)  # values without weight are not read
    inputs = AttentionInputs(*views, alpha, need_weights=True)
    assert "only in decoding steps" in triton.KERNEL.unsupported(inputs)  # not with gradients


def test_what_the_kernels_do_not_take(small_tiles, monkeypatch):
    monkeypatch.setattr(kernels, "STEP_KEYS", 30)
    _, views = projections(1, 31, 16)
    with torch.no_grad():
        output, _ = computed(triton.KERNEL.compute, *views, 1.5)
        inputs = AttentionInputs(*views, 1.5, need_weights=True)
        assert "at most 30 keys" in triton.KERNEL.unsupported(inputs)
    close("output", output, in_float64([view.double() for view in views], 1.5), 1e-5)
    near, far = (torch.empty_strided((1, 1, 2, 16), (0, 0, step, 1), device="meta") for step in (16, 2**27))
    assert triton.KERNEL.unsupported(AttentionInputs(near, near, near, 1.5)) is None
    assert "spans 2147483648 elements" in triton.KERNEL.unsupported(AttentionInputs(near, far, near, 1.5))


# ------------------------------------------------------------------------------------ routing


@pytest.fixture
def routed(monkeypatch, taken):
    """Attention as on a GPU whose kernels are trusted; the implementation of each call."""
    take_triton_kernels(monkeypatch)
    monkeypatch.setattr("user_dir.attention.triton.passes_check", lambda *arguments, **options: True)
    monkeypatch.setattr(cpu, "MIN_QUERIES", 1)
    return taken


def model_of(backend):
    layers = "--encoder-layers 1 --decoder-layers 1 --encoder-attention-heads 2"
    model = build(f"{layers} --alpha-init 1.5 --attention-backend {backend}").float().to(DEVICE)
    return model, {name: value.to(DEVICE) for name, value in batch().items()}


@pytest.mark.nightly
def test_decoding_steps_are_fused(routed):
    model, sample = model_of("auto")
    model.eval()
    with torch.no_grad():
        encoder_out = model.encoder(sample["src_tokens"], src_lengths=sample["src_lengths"])
        previous, state = sample["prev_output_tokens"][:, :3], {}
        for t in range(3):
            step, extra = model.decoder(
                previous[:, : t + 1], encoder_out=encoder_out, incremental_state=state
            )
    assert set(routed) == {"fused"} and extra["attn"][0].shape == (3, 1, 7)
    routed.clear()
    with torch.no_grad():
        full, full_extra = model.decoder(previous, encoder_out=encoder_out)
    # the returned weights are those of the last layer's context attention
    assert routed == ["fused", "dense"]
    torch.testing.assert_close(step[:, 0], full[:, 2], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(extra["attn"][0][:, 0], full_extra["attn"][0][:, 2], rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------ compilation without a GPU


def compile_calls(device, calls):
    """For each call (dtype, B, H, T, S, D, options), the kernels that had to be compiled."""
    compiled = []
    for dtype, count, heads, queries, keys, head_dim, options in calls:
        device.loaded.clear()
        launching._compiled.clear()
        torch.set_float32_matmul_precision(options.pop("precision", "highest"))
        learning = not options.pop("step", False)
        alpha = torch.full((heads, 1, 1), options.pop("alpha", 1.5)).requires_grad_(learning)
        if not options.pop("learned", True):
            alpha = alpha.detach()
        if options.pop("padded", False):
            options["key_padding_mask"] = torch.zeros(count, keys, dtype=torch.bool)
        q, k, v = (
            torch.zeros(n, count, heads * head_dim, dtype=getattr(torch, dtype))
            .view(n, count, heads, head_dim)
            .permute(1, 2, 0, 3)
            .requires_grad_(learning)
            for n in (queries, keys, keys)
        )
        output, _ = computed(triton.KERNEL.compute, q, k, v, alpha, **options)
        if learning:
            output.sum().backward()
        compiled.append(list(device.loaded))
    return compiled


SHORT = ["forward_short", "backward_short"]
MIDDLE = ["forward_short", "backward_queries", "backward_keys"]
LONG = ["forward_long", "backward_queries", "backward_keys"]


CAUSAL = (("bfloat16", 128), ("bfloat16", 256), ("float32", 256))


@pytest.mark.nightly
@pytest.mark.parametrize("capability", (80, 90))
def test_every_kernel_compiles(tmp_path, capability):
    # the largest of each bucket, which could exceed shared memory; long rows share part of it
    calls = [["bfloat16", 1, 1, n, n, 128, {"padded": True, "dropout": 0.1}] for n in (16, 64, 128, 256, 300)]
    calls += [["float32", 1, 1, n, n, 128, {"padded": True}] for n in (128, 256, 300)]
    expected = [*[SHORT] * 3, MIDDLE, LONG, MIDDLE, SHORT[:1], LONG]
    calls += [
        ["float16", 1, 1, 16, 64, 64, {"causal": True}],
        ["float16", 1, 1, 300, 300, 64, {"causal": True, "learned": False}],
        ["bfloat16", 1, 1, 64, 64, 20, {"learned": False}],
        ["float32", 1, 1, 1, 300, 16, {"causal": False}],
    ]
    expected += [SHORT, LONG, SHORT, LONG]
    # all widths and both halves of causal rows
    calls += [[dtype, 1, 1, n, n, 128, {"causal": True, "dropout": 0.1}] for dtype, n in CAUSAL]
    expected += [SHORT, MIDDLE, MIDDLE]
    for dtype in ("float32", "bfloat16"):
        calls += [
            [dtype, 1, 1, 1, keys, 128, {"step": True, "padded": True}] for keys in (16, 256, 300, 8192)
        ]
        expected += [["forward_step"]] * 4
    assert compiled_apart(__file__, capability, calls, tmp_path) == expected
