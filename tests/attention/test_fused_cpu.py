"""The fused CPU kernel against dense attention."""

from functools import partial

import pytest
import torch
from helpers import computed, covering

from user_dir.attention import attention, cpu
from user_dir.attention.dense import dense_attention

INF = float("inf")
ALPHAS = (1.0, 1.001, 1.05, 1.5, 1.9, 2.0, 3.0)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    monkeypatch.setattr(cpu, "MIN_QUERIES", 1)
    monkeypatch.setenv("ENTMAX_BACKEND", "native")


def projections(length, head_dim, dtype, batch=3, heads=7):
    """(B, H, T, D) as in a model: a view of a linear layer's output (T, B, H·D)."""
    leaf = (1.5 * torch.randn(length, batch, heads * head_dim)).to(dtype).requires_grad_()
    return leaf, leaf.view(length, batch, heads, head_dim).permute(1, 2, 0, 3)


def padding(kind, keys):
    mask = torch.arange(keys) >= torch.tensor([keys, (keys + 1) // 2, 0])[:, None]
    return {"none": None, "right": mask, "left": mask.flip(1)}[kind]


def extra(kind, queries, keys, dtype):
    if kind == "causal":
        return torch.full((queries, keys), -INF, dtype=dtype).triu(1)
    if kind == "float":
        return torch.randn(queries, keys, dtype=dtype).masked_fill(torch.rand(queries, keys) < 0.3, -INF)
    return torch.rand(queries, keys) < 0.3 if kind == "bool" else None


@pytest.mark.parametrize(
    "case",
    covering(
        size=((1, 1, 4), (1, 20, 32), (4, 9, 8), (16, 16, 32), (17, 33, 7), (40, 35, 64)),
        pad=("none", "left", "right"),
        mask=("none", "float", "bool"),
        causal=(False,),
        dtype=tuple(TOLERANCE),
        long=(False, True),
    )
    + covering(
        size=((1, 1, 8), (5, 5, 16), (33, 33, 20)),
        pad=("none", "left", "right"),
        mask=("none", "causal", "float"),
        causal=(False, True),
        dtype=tuple(TOLERANCE),
        long=(False, True),
    )
    # beyond a chunk of queries, and with rows of many keys
    + covering(
        size=((300, 300, 12),),
        pad=("none", "left"),
        mask=("none", "float"),
        causal=(False, True),
        dtype=tuple(TOLERANCE),
        long=(True,),
    ),
)
def test_outputs_weights_and_gradients(case, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_DENSE_KEYS", 0 if case["long"] else 1000)
    (queries, keys, head_dim), dtype = case["size"], case["dtype"]
    (q, split_q), (k, split_k), (v, split_v) = (
        projections(n, head_dim, dtype) for n in (queries, keys, keys)
    )
    # For α > 2 edge weights change arbitrarily fast; in single precision the row kernel's tests cover this.
    # Among many keys, some lie so close to the edge that gradients depend on rounding at smaller α too.
    most = 3.0 if dtype == torch.float64 else 2.0 if keys < 100 else 1.5
    alphas = torch.tensor(ALPHAS).clamp(max=most)
    alpha = alphas.to(dtype).view(-1, 1, 1).requires_grad_()
    masks = (padding(case["pad"], keys), extra(case["mask"], queries, keys, dtype), case["causal"])
    grad = torch.randn(split_q.shape, dtype=dtype)
    grad_weights = torch.randn(*split_q.shape[:3], keys, dtype=dtype)
    results = []
    for fused in (True, False):
        inputs = (split_q, split_k, split_v, alpha, *masks)
        if fused:
            output, weights = computed(cpu.KERNEL.compute, *inputs, need_weights=True)
        else:
            output, weights = computed(dense_attention, *inputs, need_weights=True)
        both = torch.autograd.grad(
            (output, weights), (q, k, v, alpha), (grad, grad_weights), retain_graph=True
        )
        alone = torch.autograd.grad(output, (q, k, v, alpha), grad)
        results.append((output, weights, *both, *alone))
    for actual, expected in zip(*results):
        assert actual.isfinite().all() and actual.dtype == dtype
        difference = (actual - expected).abs().max()
        assert difference <= TOLERANCE[dtype] * (1 + expected.abs().max())


def test_gradients_of_overlapping_keys():
    """Keys that are windows of one signal: the last two strides are 1."""
    signal = torch.randn(2, 3, 70, requires_grad=True)
    query, value = torch.randn(2, 2, 3, 7, 64)
    windows = signal.unfold(2, 64, 1)
    fused, dense = (
        torch.autograd.grad(compute(query, windows, value, 1.5)[0].square().sum(), signal)[0]
        for compute in (partial(computed, cpu.KERNEL.compute), partial(computed, dense_attention))
    )
    torch.testing.assert_close(fused, dense, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("most_dense_keys", (0, 1000))
@pytest.mark.parametrize("value", (float("nan"), INF))
def test_invalid_scores_propagate_within_their_row_only(value, most_dense_keys, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_DENSE_KEYS", most_dense_keys)
    q, k, v = (projections(20, 8, torch.float32)[1].detach().clone() for _ in range(3))
    q[1, 2, 18, 3] = value
    output, _ = attention(q, k, v, torch.tensor(1.5), backend="fused")
    assert output[1, 2, 18].isnan().all()
    output[1, 2, 18] = 0
    assert output.isfinite().all()


@pytest.mark.parametrize("dropout", (0.0, 0.1))
@pytest.mark.parametrize("length", (50, 600))
def test_results_are_bitwise_independent_of_the_number_of_threads(length, dropout):
    leaves = [projections(length, 16, torch.float32, batch=8 if length == 50 else 1) for _ in range(3)]
    alpha = torch.tensor(ALPHAS).view(-1, 1, 1).requires_grad_()
    results, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            torch.manual_seed(1)
            output, _ = computed(cpu.KERNEL.compute, *(split for _, split in leaves), alpha, dropout=dropout)
            grads = torch.autograd.grad(output.square().sum(), [leaf for leaf, _ in leaves] + [alpha])
            results.append((output, *grads))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0]))


@pytest.mark.parametrize("alpha, most", ((1.5, 0.1), (1.05, 0.05)))
def test_saved_for_the_backward_grows_with_the_support(alpha, most):
    """Rows with few weights save them; rows with many save at most three numbers per query."""
    leaves = [projections(512, 16, torch.float32, batch=1, heads=1) for _ in range(3)]
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor), lambda tensor: tensor):
        computed(cpu.KERNEL.compute, *(split for _, split in leaves), alpha)
    inputs = {split.data_ptr() for _, split in leaves}
    beyond = [tensor for tensor in saved if tensor is not None and tensor.data_ptr() not in inputs]
    assert 0 < sum(tensor.nbytes for tensor in beyond) < most * 4 * 512**2


@pytest.mark.parametrize("most_dense_keys", (0, 1000))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_is_computed_in_single(dtype, most_dense_keys, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_DENSE_KEYS", most_dense_keys)
    tensors = [projections(33, 20, dtype)[1].detach() for _ in range(4)]
    alpha = torch.tensor(ALPHAS).clamp(max=2.0).view(-1, 1, 1).requires_grad_()
    mask = torch.randn(33, 33).masked_fill(torch.rand(33, 33) < 0.3, -INF).to(dtype)
    grad_weights = torch.randn(3, 7, 33, 33).to(dtype)
    results = []
    for stored in (dtype, torch.float32):
        *inputs, grad = (tensor.to(stored) for tensor in tensors)
        leaves = [tensor.requires_grad_() for tensor in inputs]
        arguments = (*leaves, alpha, padding("left", 33), mask.to(stored))
        output, weights = computed(cpu.KERNEL.compute, *arguments, need_weights=True)
        grads = torch.autograd.grad((output, weights), (*leaves, alpha), (grad, grad_weights.to(stored)))
        assert {tensor.dtype for tensor in (output, weights, *grads[:3])} == {stored}
        results.append((output, weights, *grads))
    for half, single in zip(*results):
        assert torch.equal(half, single.to(half.dtype))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("most_dense_keys", (0, 1000))
def test_dropout(most_dense_keys, dtype, monkeypatch):
    """Values that are unit vectors show the weights after dropout; the gradients are those of that mask."""
    monkeypatch.setattr(cpu, "MAX_DENSE_KEYS", most_dense_keys)
    q, k = (projections(90, 90, dtype)[1].detach().requires_grad_() for _ in range(2))
    value = torch.eye(90, dtype=dtype).expand(3, 7, 90, 90).clone().requires_grad_()
    alpha = torch.tensor(ALPHAS).clamp(1.0, 1.5).to(dtype).view(-1, 1, 1).requires_grad_()
    inputs = (q, k, value, alpha)
    torch.manual_seed(3)
    output, weights = computed(cpu.KERNEL.compute, *inputs, dropout=0.3, need_weights=True)
    support = weights > 0
    factor = torch.where(support, output / weights, torch.ones(()).to(dtype)).detach()
    dropped = factor == 0
    torch.testing.assert_close(
        factor[support & ~dropped], factor.new_tensor(1 / 0.7).expand_as(factor[support & ~dropped])
    )
    assert abs(dropped[support].double().mean() - 0.3) < 4 * (0.21 / support.sum()) ** 0.5
    full = dropped[:, :3]  # α close to 1: hardly any weight is 0
    for pairs in (full[0] ^ full[1], full[:, 0] ^ full[:, 1], full[..., 1:] ^ full[..., :-1]):
        assert abs(pairs[..., :40, :].double().mean() - 0.42) < 0.03, "not the same mask again"

    grad = torch.randn_like(output)
    expected = computed(dense_attention, *inputs, need_weights=True)[1] * factor @ value
    for actual, truth in zip(
        torch.autograd.grad(output, inputs, grad), torch.autograd.grad(expected, inputs, grad)
    ):
        assert (actual - truth).abs().max() <= TOLERANCE[dtype] * (1 + truth.abs().max())

    torch.manual_seed(3)
    assert torch.equal(computed(cpu.KERNEL.compute, *inputs, dropout=0.3)[0], output)
    assert not torch.equal(computed(cpu.KERNEL.compute, *inputs, dropout=0.3)[0], output)
    assert not computed(cpu.KERNEL.compute, *inputs, dropout=1.0)[0].any()
