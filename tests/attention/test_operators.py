"""Attention as operators: torch.compile, torch.export, torch.func, fake tensors and checkpointing."""

import copy
import io

import pytest
import torch
from helpers import computed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

from user_dir.attention import attention, cpu, triton

BATCH, HEADS, HEAD_DIM = 2, 3, 8
ALPHA = torch.tensor([1.2, 1.5, 2.0]).view(3, 1, 1)


@pytest.fixture(autouse=True)
def _kernel():
    if not cpu.kernels.available():
        pytest.skip("no C++ compiler")


def tensors(queries=6, keys=6, batch=BATCH):
    drawn = (torch.randn(length, batch, HEADS, HEAD_DIM) for length in (queries, keys, keys))
    return [tensor.permute(1, 2, 0, 3) for tensor in drawn]


def padding(keys=6, batch=BATCH):
    mask = torch.zeros(batch, keys, dtype=torch.bool)
    mask[0, -2:] = True
    return mask


def weighted(output):
    return output.flatten().cumsum(0).square().mean()


def by_autograd(function, *inputs):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    return torch.autograd.grad(weighted(function(*inputs)), inputs)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def triton_kernel():
    """In Triton's interpreter, unless there is a GPU."""
    pytest.importorskip("triton")
    return triton.KERNEL


# 170 keys: too many for the eager kernel to save weights, and some tiles are sparse.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Triton's interpreter computes with numpy
@pytest.mark.parametrize(
    "device, keys",
    (
        ("cpu", 6),
        pytest.param("cpu", 170, marks=pytest.mark.nightly),
        pytest.param("triton", 6, marks=pytest.mark.nightly),
        ("triton step", 6),
    ),
)
def test_are_what_torch_expects(device, keys):
    on_cpu, step = device == "cpu", device == "triton step"
    kernel = cpu.KERNEL if on_cpu else triton_kernel()
    inputs = [tensor.requires_grad_() for tensor in tensors(1 if step else 6, keys)]
    mask = torch.randn(6, keys) if on_cpu else None
    arguments = (*inputs, ALPHA.clone().requires_grad_(), padding(keys), mask, False, 0.0 if step else 0.3)
    arguments += (None if step else torch.tensor(5), on_cpu or step)
    if not step:
        opcheck(kernel._operator, (*arguments, True))
        output, weights, saved = kernel._operator(*arguments, True)
    arguments = [x.detach() if torch.is_tensor(x) else x for x in arguments]
    opcheck(kernel._operator, (*arguments, False))
    if not step:
        grads = (output.detach(), weights.detach() if on_cpu else None)
        opcheck(kernel._backward_operator, (*arguments[:-1], saved, *grads, True))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("queries", (1, 6))
def test_the_operator_of_triton_computes_what_its_eager_call_does(queries):
    attention_by, (q, k, v) = triton_kernel().compute, tensors(queries)

    def call(q, k, v, alpha):
        return computed(attention_by, q, k, v, alpha, padding())[0]

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v, ALPHA), call(q, k, v, ALPHA))
    close(by_autograd(compiled, q, k, v, ALPHA), by_autograd(call, q, k, v, ALPHA))
    outputs = torch.vmap(lambda *x: call(*x, ALPHA))(*(torch.stack((x, -x)) for x in (q, k, v)))
    close(outputs[1], call(-q, -k, -v, ALPHA))


@pytest.mark.parametrize("dynamic", (pytest.param(False, marks=pytest.mark.nightly), True))
def test_compiles_without_breaks(dynamic):
    def masked(q, k, v, alpha, padding):
        output, weights = attention(q, k, v, alpha, padding, causal=True, need_weights=True)
        return output + weights.sum(-1, keepdim=True) * weights.amax(-1, keepdim=True)

    torch._dynamo.reset()
    compiled = torch.compile(masked, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length, batch in ((6, 2), (9, 3)):
        arguments = *tensors(length, length, batch), ALPHA
        hidden = padding(length, batch)
        assert torch.equal(compiled(*arguments, hidden), masked(*arguments, hidden))
        actual, expected = (
            by_autograd(lambda *x, f=f, m=hidden: f(*x, m), *arguments) for f in (compiled, masked)
        )
        close(actual, expected)


@pytest.mark.parametrize("backend", ("fused", "dense"))
def test_dropout_of_a_graph_is_drawn_anew(backend):
    def dropped(q, k, v):
        return attention(q, k, v, 1.5, dropout=0.5, backend=backend)[0]

    torch._dynamo.reset()
    compiled, qkv = torch.compile(dropped, fullgraph=True, backend="aot_eager"), tensors()
    torch.manual_seed(3)
    first, second = compiled(*qkv), compiled(*qkv)
    torch.manual_seed(3)
    assert torch.equal(first, dropped(*qkv)) and not torch.equal(first, second)


class SelfAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(HEADS * HEAD_DIM, 3 * HEADS * HEAD_DIM)
        self.alpha = torch.nn.Parameter(ALPHA.clone())

    def forward(self, x, padding):
        parts = self.project(x).view(*x.shape[:2], 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        return attention(*parts, self.alpha, padding)[0]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_trace_computes_attention():
    def call(q, k, v):
        return attention(q, k, v, 1.5, padding())[0]

    qkv = tensors()
    traced, file = torch.jit.trace(call, qkv), io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    traced = torch.jit.load(file)
    others = [tensor.flip(2) for tensor in qkv]
    assert torch.equal(traced(*others), call(*others))
    close(by_autograd(traced, *others), by_autograd(call, *others))


@pytest.mark.parametrize("gradients", (False, True))
def test_exports_with_lengths_that_vary(gradients):
    module, length = SelfAttention(), torch.export.Dim("length", max=500)
    with torch.set_grad_enabled(gradients):
        x, hidden = torch.randn(2, 7, HEADS * HEAD_DIM), padding(7)
        shapes = ({1: length}, {1: length})
        exported = torch.export.export(module, (x, hidden), dynamic_shapes=shapes).module()
        for size in (2, 180):
            x, hidden = torch.randn(2, size, HEADS * HEAD_DIM), padding(size)
            close(exported(x, hidden), module(x, hidden))


def test_modules_are_copied_called_with_other_parameters_and_checkpointed():
    module, x = SelfAttention(), torch.randn(2, 7, HEADS * HEAD_DIM)
    expected = module(x, padding(7))
    assert torch.equal(copy.deepcopy(module)(x, padding(7)), expected)
    parameters = dict(module.named_parameters())
    assert torch.equal(torch.func.functional_call(module, parameters, (x, padding(7))), expected)

    def loss(parameters):
        return weighted(torch.func.functional_call(module, parameters, (x, padding(7))))

    grads = torch.autograd.grad(weighted(expected), parameters.values())
    actual = torch.func.grad(loss)({name: value.detach() for name, value in parameters.items()})
    close(tuple(actual.values()), grads)
    again = checkpoint(module, x, padding(7), use_reentrant=False)
    close(torch.autograd.grad(weighted(again), parameters.values()), grads)


# 3 queries: dense
@pytest.mark.parametrize("queries", (3, 6))
def test_gradients_by_example(queries):
    qkv, hidden = tensors(queries), padding()

    def loss(q, k, v, alpha, hidden):
        return weighted(attention(q[None], k[None], v[None], alpha, hidden[None])[0])

    grads = torch.vmap(torch.func.grad(loss, (0, 1, 2, 3)), (0, 0, 0, None, 0))(*qkv, ALPHA, hidden)
    for i in range(BATCH):
        example = [x[i : i + 1] for x in qkv]
        expected = by_autograd(lambda *x, i=i: attention(*x, hidden[i : i + 1])[0], *example, ALPHA)
        close([grad[i] for grad in grads], [*(grad[0] for grad in expected[:3]), expected[3]])


def test_vmap_over_alpha_and_masks():
    qkv, alphas, masks = tensors(), torch.stack((ALPHA, ALPHA.flip(0))), torch.randn(2, 6, 6)

    def masked(alpha, mask):
        return attention(*qkv, alpha, attn_mask=mask)[0]

    for i, output in enumerate(torch.vmap(masked)(alphas, masks)):
        close(output, masked(alphas[i], masks[i]))
    grads = torch.vmap(torch.func.grad(lambda a, m: weighted(masked(a, m))))(alphas, masks)
    for i, grad in enumerate(grads):
        close(grad, by_autograd(lambda a, i=i: masked(a, masks[i]), alphas[i])[0])


def test_a_gradient_of_masks_is_never_zero_in_silence():
    query = torch.randn(1, 1, 6, 8)
    compute = lambda mask: attention(query, query, query, 1.5, attn_mask=mask)[0].sum()  # noqa: E731
    with pytest.raises(RuntimeError, match="no gradient of attn_mask"):
        torch.func.grad(lambda masks: torch.vmap(compute)(masks).sum())(torch.randn(3, 6, 6))


def test_randomness_of_vmap():
    q, k, v = (tensor[:1].expand(3, -1, -1, -1) for tensor in tensors())

    def dropped(q, k, v):
        return attention(q[None], k[None], v[None], 1.5, dropout=0.5)[0]

    with pytest.raises(RuntimeError, match="random"):
        torch.vmap(dropped)(q, k, v)
    same, different = (torch.vmap(dropped, randomness=kind)(q, k, v) for kind in ("same", "different"))
    assert torch.equal(same[0], same[1]) and not torch.equal(different[0], different[1])


def test_second_derivatives_and_forward_mode_are_errors():
    q = tensors()[0]

    def loss(q, backend):
        return weighted(attention(q, q, q, 1.5, backend=backend)[0])

    def second(backend):
        return torch.func.grad(lambda q: torch.func.grad(loss)(q, backend).square().sum())(q)

    with pytest.raises(RuntimeError, match="twice"):
        second("fused")
    assert second("dense").abs().sum() > 0
    for backend in ("fused", "dense"):
        with pytest.raises(NotImplementedError):
            torch.func.jvp(lambda q, b=backend: loss(q, b), (q,), (q,))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError):
            loss(torch.autograd.forward_ad.make_dual(q, q), backend)


def test_tensors_without_numbers():
    with FakeTensorMode():
        q, k, v = (tensor.requires_grad_() for tensor in tensors())
        output, weights = attention(q, k, v, 1.5, padding(), dropout=0.1, need_weights=True)
        assert output.shape == q.shape and weights.shape == (BATCH, HEADS, 6, 6)
        assert torch.autograd.grad(output.sum(), q)[0].shape == q.shape
    q, k, v = (tensor.to("meta") for tensor in tensors())
    assert attention(q, k, v, 1.5, need_weights=True)[1].shape == (BATCH, HEADS, 6, 6)
