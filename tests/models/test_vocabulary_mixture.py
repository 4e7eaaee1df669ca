"""Mixtures from features: the blocks against the whole."""

import pytest
import torch
from torch.nn import functional

from user_dir.latent import log_mixture
from user_dir.latent import mixture as mixture_cpu
from user_dir.models import latent_alignment as module
from user_dir.models import layers as linear_module
from user_dir.models.latent_alignment import vocabulary_mixture

ROW, ROWS = torch.tensor([0, 0, 1, 3, 3, 3, 4]), 6  # rows 2 and 5 have no pair


def problem(dtype=torch.float64):
    features = torch.randn(len(ROW), 4, dtype=dtype).requires_grad_()
    vocabulary = torch.randn(9, 4, dtype=dtype).requires_grad_()
    weights = (0.1 + torch.rand(len(ROW), dtype=dtype)).requires_grad_()
    return features, vocabulary, weights


@pytest.mark.parametrize("block", (1, 20, 60, 10**6))  # less than a row, a few rows, all
@pytest.mark.parametrize("by_onednn", (False, True))
@pytest.mark.parametrize(("dtype", "tolerance"), ((torch.float64, 1e-12), (torch.float32, 1e-4)))
def test_blocks_against_the_whole(monkeypatch, block, by_onednn, dtype, tolerance):
    if not mixture_cpu.kernels.available():
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "log_mixture", None)  # not called
    monkeypatch.setattr(linear_module, "prefers_onednn", lambda: by_onednn)
    features, vocabulary, weights = problem(dtype)
    found = vocabulary_mixture(features, vocabulary, weights, ROW, ROWS)
    expected = log_mixture(functional.linear(features, vocabulary), weights, ROW, ROWS)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    used = torch.tensor([0, 1, 3, 4])
    grad = torch.randn(len(used), 9, dtype=dtype)
    inputs = features, vocabulary, weights
    ours = torch.autograd.grad(found[used], inputs, grad)
    for one, other in zip(ours, torch.autograd.grad(expected[used], inputs, grad)):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_gradients(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 30)
    assert torch.autograd.gradcheck(
        lambda *inputs: vocabulary_mixture(*inputs, ROW, ROWS)[[0, 1, 3, 4]], problem()
    )


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_what_blocks_do_not_support(monkeypatch, dtype):
    monkeypatch.setenv("ENTMAX_BACKEND", "reference" if dtype == torch.float32 else "")
    features, vocabulary, weights = (each.detach().to(dtype) for each in problem())
    found = vocabulary_mixture(features, vocabulary, weights, ROW, ROWS)
    expected = log_mixture(functional.linear(features, vocabulary), weights, ROW, ROWS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_rows_out_of_order():
    features, vocabulary, weights = problem()
    with pytest.raises(ValueError, match="row must ascend"):
        vocabulary_mixture(features, vocabulary, weights, ROW.flip(0), ROWS)


BACKENDS = pytest.mark.parametrize("backend", ("", "reference"))


@BACKENDS
@pytest.mark.parametrize("shapes", (((6, 4), (9, 4), (2,), (6,)), ((6, 4), (9, 4), (6,), (2,))))
def test_as_many_weights_and_rows_as_features(monkeypatch, backend, shapes):
    monkeypatch.setenv("ENTMAX_BACKEND", backend)
    features, vocabulary, weights = (torch.ones(shape) for shape in shapes[:3])
    message = rf"not \[6, .\], \[{shapes[2][0]}\] and \[{shapes[3][0]}\]"
    with pytest.raises(ValueError, match=message):
        vocabulary_mixture(features, vocabulary, weights, torch.zeros(shapes[3], dtype=torch.long), 6)


@BACKENDS
@pytest.mark.parametrize("shapes", (((6,), (9, 4)), ((6, 4), (4,)), ((6, 4), (9, 5)), ((6, 4, 1), (9, 4))))
def test_features_and_vocabulary_that_do_not_fit(monkeypatch, backend, shapes):
    monkeypatch.setenv("ENTMAX_BACKEND", backend)
    features, vocabulary = (torch.ones(shape) for shape in shapes)
    with pytest.raises(ValueError) as raised:
        vocabulary_mixture(features, vocabulary, torch.ones(6), torch.zeros(6, dtype=torch.long), 6)
    assert f"not {list(shapes[0])} and {list(shapes[1])}" in str(raised.value)


def spread_out(values):
    """The same values, with other numbers between them in memory."""
    return torch.stack((values, torch.full_like(values, 7)), dim=-1)[..., 0]


@BACKENDS
@pytest.mark.parametrize("by_onednn", (False, True))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_strides(monkeypatch, backend, by_onednn, dtype):
    monkeypatch.setenv("ENTMAX_BACKEND", backend)
    monkeypatch.setattr(linear_module, "prefers_onednn", lambda: by_onednn)
    monkeypatch.setattr(module, "BLOCK", 30)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    plain = [each.detach() for each in problem(dtype)]
    columns = [each.t().contiguous().t() if each.dim() == 2 else spread_out(each) for each in plain]
    repeated = [each[:1].expand(len(each), *each.shape[1:]) for each in plain]
    row = spread_out(ROW)
    assert not row.is_contiguous()
    for given in ([spread_out(each) for each in plain], columns, repeated):
        same = [each.contiguous().requires_grad_() for each in given]
        given = [each.requires_grad_() for each in given]
        found = vocabulary_mixture(*given, row, ROWS)
        expected = log_mixture(functional.linear(*same[:2]), same[2], ROW, ROWS)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        used = torch.tensor([0, 1, 3, 4])
        grad = spread_out(torch.randn(len(used), 9, dtype=dtype))
        ours = torch.autograd.grad(found[used], given, grad)
        for one, other in zip(ours, torch.autograd.grad(expected[used], same, grad)):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
