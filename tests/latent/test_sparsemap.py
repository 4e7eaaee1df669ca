"""SparseMAP by an active set: the optimality conditions over all structures, and oracles that are wrong."""

import itertools

import pytest
import torch

from user_dir.latent import bits_oracle, sparsemap


class Chain:
    """The best sequence of states, by trying all; its parts are the states, then transitions between them."""

    def __init__(self, steps, states):
        paths = torch.tensor(list(itertools.product(range(states), repeat=steps)))
        unary = torch.nn.functional.one_hot(paths, states).double()
        binary = unary[:, :-1, :, None] * unary[:, 1:, None, :]
        self.structures = torch.cat((unary.flatten(1), binary.flatten(1)), dim=1)
        self.parts, self.transitions = self.structures.size(1), binary[0].numel()

    def __call__(self, scores):
        return self.structures[int((self.structures @ scores).argmax())]


def slopes(scores, support, example, regularised):
    """The derivative of the objective by the mean of each part."""
    mean = support.expectation(support.choices)[example]
    return torch.cat((scores[example, :regularised] - mean[:regularised], scores[example, regularised:]))


CHAINS = [(1, 4), (2, 3), (4, 3), (6, 2)]


@pytest.mark.parametrize("regularise_all", (False, True))
@pytest.mark.parametrize("steps, states", CHAINS)
def test_optimal_among_all_sequences(steps, states, regularise_all):
    """p is optimal if no structure has a higher slope than those of the support, which all have the same."""
    chain = Chain(steps, states)
    free = 0 if regularise_all else chain.transitions
    scores = torch.randn(10, chain.parts, dtype=torch.float64)
    support = sparsemap(scores, chain, unregularised=free)
    assert support.certified.all()
    assert 1 < support.counts().double().mean() < states**steps
    structures = chain.structures
    for example in range(10):
        slope = slopes(scores, support, example, chain.parts - free)
        own = support.choices[support.batch == example] @ slope
        torch.testing.assert_close(own, (structures @ slope).max().expand_as(own), rtol=0, atol=1e-7)
        assert abs(support.weights[support.batch == example].sum() - 1) < 1e-12
    assert (support.weights > 0).all()


def test_gradients_with_the_support_held():
    chain = Chain(4, 3)
    compared = 0
    for _ in range(12):
        scores = torch.randn(1, chain.parts, dtype=torch.float64)
        support = sparsemap(scores.requires_grad_(), chain, chain.transitions)
        direction = torch.randn_like(scores)
        near = [sparsemap(scores.detach() + h * direction, chain, chain.transitions) for h in (1e-6, -1e-6)]
        if any(not torch.equal(neighbour.choices, support.choices) for neighbour in near):
            continue
        expected = (near[0].weights - near[1].weights) / 2e-6
        function = torch.randn_like(expected)
        (gradient,) = torch.autograd.grad(support.weights @ function, scores)
        torch.testing.assert_close((gradient * direction).sum(), expected @ function, rtol=1e-5, atol=1e-7)
        compared += 1
    assert compared >= 6


def test_affinely_dependent_structures_are_replaced():
    """Four structures of which two pairs have the same sum; only an unregularised part tells them apart."""
    structures = torch.tensor(
        [[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 1, 1], [0, 1, 1, 0, 1]], dtype=torch.float64
    )

    def oracle(scores):
        return structures[int((structures @ scores).argmax())]

    for bonus in (-0.4, 0.4):
        scores = torch.tensor([[0.1, 0, 0.05, 0, bonus]], dtype=torch.float64)
        support = sparsemap(scores, oracle, unregularised=1)
        assert support.certified.all()
        slope = slopes(scores, support, 0, 4)
        own = support.choices @ slope
        torch.testing.assert_close(own, (structures @ slope).max().expand_as(own), rtol=0, atol=1e-9)
        # pairs are mixed in equal shares but for the preference of the first two parts
        assert support.choices[:, 4].unique().tolist() == [float(bonus > 0)]


def test_an_early_stop_is_not_certified():
    scores = torch.zeros(1, 12, dtype=torch.float64)
    scores[:, :6] = 0.1 * torch.arange(6)
    for iterations in (1, 2, 3):
        early = sparsemap(scores, bits_oracle, max_iterations=iterations)
        assert not early.certified.any()
        assert (early.weights > 0).all() and abs(early.weights.sum() - 1) < 1e-12
    assert sparsemap(scores, bits_oracle).certified.all()


WRONG = {
    "shape": (lambda x: x[:3], "must answer with 4 numbers 0 or 1, not [0.0, 0.0, 0.0]"),
    "half a bit": (lambda x: torch.full_like(x, 0.5), "not [0.5,"),
    "nan": (lambda x: torch.full_like(x, float("nan")), "not [nan,"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_answer_that_is_no_structure_is_named(case):
    oracle, message = WRONG[case]
    with pytest.raises(ValueError) as raised:
        sparsemap(torch.zeros(1, 4), oracle)
    assert message in str(raised.value)


def test_an_oracle_that_forgets_the_best_structure_is_found():
    answers = iter([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])])
    with pytest.raises(ValueError, match="is not the best structure"):
        sparsemap(torch.tensor([[5.0, 0.0]]), lambda scores: next(answers))


def test_no_examples_have_no_gradient():
    scores = torch.zeros(0, 4, requires_grad=True)
    sparsemap(scores, bits_oracle).weights.sum().backward()
    assert scores.grad.shape == (0, 4)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_autocast_leaves_weights_and_gradients(dtype):
    scores = (5000 + torch.rand(1, 20)).requires_grad_()
    scores.data[0, 0] = 0.3
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype, enabled=enabled):
            weights = sparsemap(scores, bits_oracle).weights
        results.append((weights, *torch.autograd.grad(weights.square().sum(), scores)))
    torch.testing.assert_close(*results)


def test_other_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"scores\[0, 1\] is nan"):
        sparsemap(torch.tensor([[0.0, float("nan")]]), bits_oracle)
    with pytest.raises(ValueError, match="unregularised must be between 0 and 3, not 4"):
        sparsemap(torch.zeros(1, 4), bits_oracle, unregularised=4)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
def test_no_weight_is_zero_or_rounding(dtype):
    """Ties, and in float16 weights below the least number: no structure is called for nothing."""
    chain = Chain(3, 2)
    tied = torch.zeros(1, 8, dtype=dtype)
    tied[0, :4] = 0.5
    tiny = torch.full((1, 2), 0.5, dtype=torch.float64)
    tiny[0, 0] += 3e-8  # in float16 nothing, else a weight of 3e-8 more
    spread = (3 * torch.randn(20, 10)).to(dtype)
    for scores, oracle in ((tied, bits_oracle), (tiny.to(dtype), bits_oracle), (spread, bits_oracle)):
        support = sparsemap(scores, oracle)
        assert (support.weights > 1e-10).all() and support.certified.all()
        assert support.weights.dtype == support.choices.dtype == dtype
        rounding = max(4 * torch.finfo(dtype).eps, 1e-12)
        sums = torch.zeros(len(scores), dtype=torch.float64).index_add(
            0, support.batch, support.weights.double()
        )
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=rounding)
        assert (support.entropy() >= 0).all()
        half = scores.size(1) // 2
        expected = (1 + scores[:, :half].double() - scores[:, half:].double()).div(2).clamp(0, 1)
        mean = support.expectation(support.choices)[:, :half].double()
        torch.testing.assert_close(mean, expected, rtol=0, atol=2 * rounding)
    twin = torch.zeros(1, chain.parts, dtype=dtype)
    assert (sparsemap(twin, chain, chain.transitions).weights > 1e-10).all()
