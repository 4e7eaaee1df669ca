"""The native CPU kernel, with any number of threads."""

import pytest
import torch
from helpers import each_once

from user_dir.entmax import entmax, has_native, op
from user_dir.entmax.rows import alpha_per_row

ALPHAS = torch.tensor([1.0, 1.001, 1.3, 1.5, 1.9, 2.0, 3.0]).view(7, 1, 1)


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", "native")


def test_results_are_bitwise_independent_of_the_number_of_threads():
    scores = 3 * torch.randn(16, 7, 33, 50)
    grad = torch.randn_like(scores)
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            z, alpha = scores.clone().requires_grad_(), ALPHAS.clone().requires_grad_()
            weights = entmax(z, alpha)
            weights.backward(grad)
            results.append((weights, z.grad, alpha.grad))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0]))


@pytest.mark.parametrize("case", each_once(rows=(1, 7, 8, 15, 16, 17, 33), n=(1, 15, 16, 17, 31, 100)))
def test_a_row_does_not_depend_on_its_neighbours(case):
    rows, n = case["rows"], case["n"]
    scores = 2 * torch.randn(rows, n)
    alpha = 1 + torch.rand(rows, 1)
    alone = torch.cat([entmax(scores[i : i + 1], alpha[i]) for i in range(rows)])
    torch.testing.assert_close(entmax(scores, alpha), alone, rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 1), (4, 1), (3, 4, 1), (2, 3, 1, 1), (2, 3, 4, 1)]
)
def test_alpha_is_not_expanded_to_all_rows(shape):
    vector, repeat = alpha_per_row(torch.rand(shape), torch.randn(2, 3, 4, 5), -1)
    assert vector.is_contiguous() and vector.numel() == torch.Size(shape).numel()
    assert 24 % (repeat * vector.numel()) == 0


@pytest.mark.parametrize(
    "backend_asked, says", [("fast", "is not valid: use native or reference"), ("native", "unset it")]
)
def test_an_unavailable_backend_is_refused(backend_asked, says, monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", backend_asked)
    monkeypatch.setattr(op, "_native", lambda device: None)
    for call in (lambda: entmax(torch.zeros(3), 1.5), lambda: has_native("cpu")):
        with pytest.raises(ValueError, match=f"^ENTMAX_BACKEND={backend_asked}.* {says}"):
            call()
