"""Estimators of expected losses: unbiased ones have the exact gradient within their standard error."""

import itertools

import pytest
import torch

from user_dir.latent import (
    Bits,
    Categories,
    RunningMean,
    dense,
    gumbel,
    marginalise,
    nvil,
    sfe,
    sfe_plus,
    sparsemax,
)

FAMILIES = {"categories": Categories, "bits": Bits}
DRAWS = 20_000


def problem():
    """Scores (1, 4), and a loss of choices (and an input that shifts it)."""
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    table = torch.randn(4, generator=generator, dtype=torch.float64)

    def loss(choices, inputs):
        chosen = table[choices] if choices.dtype == torch.long else (choices * table).sum(-1).square()
        return chosen + inputs * chosen.sin()

    return scores, loss


def enumerated(family, scores, loss):
    """The exact expected loss from products of probabilities, without the families' own code."""
    if family == "categories":
        probabilities = scores[0].softmax(0)
        return sum(p * loss(torch.tensor([i]), torch.ones(1))[0] for i, p in enumerate(probabilities))
    total = 0
    for bits in itertools.product((0.0, 1.0), repeat=4):
        bits = torch.tensor([bits], dtype=torch.float64)
        probability = (bits * scores.sigmoid() + (1 - bits) * (1 - scores.sigmoid())).prod()
        total = total + probability * loss(bits, torch.ones(1))[0]
    return total


UNBIASED = {
    "dense": dense,
    "sfe": lambda *arguments: sfe(*arguments, baseline=baseline()),
    "sfe_plus": sfe_plus,
    "nvil": lambda *arguments: nvil(*arguments, baseline=torch.full((DRAWS,), 0.3, dtype=torch.float64)),
}


def baseline():
    mean = RunningMean()
    mean.update(torch.tensor([0.1, 0.5]))
    return mean


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("estimator", UNBIASED)
def test_the_mean_gradient_is_exact(estimator, family):
    scores, loss = problem()
    exact = enumerated(family, scores.requires_grad_(), loss)
    (expected,) = torch.autograd.grad(exact, scores)
    draws = scores.detach().expand(DRAWS, -1).clone().requires_grad_()
    estimate = UNBIASED[estimator](loss, FAMILIES[family](draws), torch.ones(DRAWS, dtype=torch.float64))
    (gradients,) = torch.autograd.grad(estimate.sum(), draws)
    for values, wanted in ((estimate.detach().unsqueeze(1), exact.detach()), (gradients, expected)):
        error = values.std(0) / DRAWS**0.5
        assert ((values.mean(0) - wanted).abs() <= 4 * error + 1e-12).all()
        assert (error < 0.02).all()
        assert (error > 1e-4).all() or estimator == "dense"


@pytest.mark.parametrize("dtype", (torch.float16, torch.float32))
@pytest.mark.parametrize("estimator", (sfe, sfe_plus, nvil))
def test_a_finite_loss_is_the_value(estimator, dtype):
    """Also where its square, or its product with log π(z), is not finite in the dtype."""
    scores, large = torch.zeros(1, 100, dtype=dtype), 0.5 * torch.finfo(dtype).max
    own = {"sfe": {"baseline": RunningMean()}, "nvil": {"baseline": torch.zeros(1, dtype=dtype)}}
    own = own.get(estimator.__name__, {})
    value = estimator(lambda choices: choices[:, 0] * 0 + large, Bits(scores), **own)
    assert value == large


@pytest.mark.parametrize("family", FAMILIES)
def test_straight_through_samples_exactly(family):
    scores, loss = problem()

    def on_vectors(choices, inputs):
        if family == "categories":
            assert torch.equal(choices.sum(1), torch.ones_like(inputs))
            return choices @ loss(torch.arange(4), inputs[:1])
        assert ((choices == 0) | (choices == 1)).all()
        return loss(choices, inputs)

    draws = scores.expand(DRAWS, -1).clone().requires_grad_()
    ones = torch.ones(DRAWS, dtype=torch.float64)
    estimate = gumbel(on_vectors, FAMILIES[family](draws), ones, temperature=1.0, straight_through=True)
    error = estimate.std() / DRAWS**0.5
    assert (estimate.mean() - enumerated(family, scores, loss)).abs() <= 4 * error
    assert torch.autograd.grad(estimate.sum(), draws)[0].abs().sum() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_relaxed_choices_have_the_gradient_of_their_loss(family):
    scores = torch.randn(3, 4, dtype=torch.float64).requires_grad_()
    table = torch.randn(4, dtype=torch.float64)

    def estimate(x):
        torch.manual_seed(5)
        return gumbel(lambda z: (z @ table).square(), FAMILIES[family](x), temperature=0.7)

    assert torch.autograd.gradcheck(estimate, scores)
    relaxed = FAMILIES[family](scores).relaxed(0.7)
    assert ((relaxed > 0) & (relaxed < 1)).all()
    with pytest.raises(ValueError, match="temperature must be positive, not 0"):
        gumbel(lambda z: z, FAMILIES[family](scores), temperature=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_entropy_and_log_probabilities(family):
    made = FAMILIES[family](torch.randn(3, 4, dtype=torch.float64))
    everything = made.everything()
    torch.testing.assert_close(everything.entropy(), made.entropy())
    assert torch.equal(everything.counts(), torch.full((3,), 4 if family == "categories" else 16))
    chosen = everything.choices.view(3, -1, *everything.choices.shape[1:])[:, 2]
    torch.testing.assert_close(made.log_prob(chosen).exp(), everything.weights.view(3, -1)[:, 2])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_entropy_of_near_certain_choices_has_a_finite_gradient(family, dtype):
    scores = torch.tensor([[1000.0, 0.0, -1000.0], [2.0, 1.0, 0.0]], dtype=dtype, requires_grad=True)
    entropy = FAMILIES[family](scores).entropy()
    entropy.sum().backward()
    assert entropy[0] >= 0 and entropy[1] > 0
    assert scores.grad.isfinite().all() and (scores.grad[1] != 0).any()


def test_the_learned_baseline_is_trained():
    baseline = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    losses = torch.arange(5, dtype=torch.float64)
    estimate = nvil(lambda z: losses, Categories(torch.zeros(5, 3, dtype=torch.float64)), baseline=baseline)
    torch.testing.assert_close(torch.autograd.grad(estimate.sum(), baseline)[0], -2 * losses)
    assert torch.equal(estimate.detach(), losses)


def test_marginalise_gathers_each_input_by_example():
    scores = torch.tensor([[5.0, 0.0, 0.0], [0.0, 0.2, 0.1], [0.0, 0.0, -9.0]], dtype=torch.float64)
    support = sparsemax(scores)
    assert support.counts().tolist() == [1, 3, 2]
    x, weight = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    calls = []

    def loss(choices, inputs, number):
        calls.append(choices.numel())
        return (weight[choices] * inputs).sum(1) * number

    number = torch.arange(3, dtype=torch.float64)
    losses = marginalise(loss, support, x, number)
    assert calls == [6]
    for example in range(3):
        pairs = zip(support.choices[support.batch == example], support.weights[support.batch == example])
        expected = sum(p * (weight[z] @ x[example]) * example for z, p in pairs)
        torch.testing.assert_close(losses[example], expected)


def test_gradients_of_marginalised_losses():
    support_of = torch.randn(4, 5, dtype=torch.float64).requires_grad_()
    table = torch.randn(5, 3, dtype=torch.float64).requires_grad_()
    x = torch.randn(4, 3, dtype=torch.float64).requires_grad_()

    def expected(scores, weight, inputs):
        return marginalise(lambda z, rows: (weight[z] * rows).sum(1).tanh(), sparsemax(scores), inputs)

    assert torch.autograd.gradcheck(expected, (support_of, table, x))


ESTIMATORS = {
    "dense": dense,
    "sfe": lambda *arguments: sfe(*arguments, baseline=RunningMean()),
    "sfe_plus": sfe_plus,
    "nvil": lambda *arguments: nvil(*arguments, baseline=torch.zeros(4)),
    "gumbel": lambda *arguments: gumbel(*arguments, temperature=1.0),
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_shapes_that_do_not_fit_are_named(estimator):
    """They would be broadcast."""
    family, x = Categories(torch.zeros(4, 3)), torch.zeros(4)
    for shape in ((4, 1), (), (3,)):
        with pytest.raises(ValueError, match=r"loss function .*, not "):
            ESTIMATORS[estimator](lambda z, x, shape=shape: torch.zeros(shape), family, x)
    for shape in ((1,), (), (5, 2)):
        with pytest.raises(ValueError, match=r"input 1 has shape .* but the distribution has 4 examples"):
            ESTIMATORS[estimator](lambda *arguments: pytest.fail("called"), family, x, torch.zeros(shape))
    with pytest.raises(ValueError, match="the baseline must have one value for each of 4 examples"):
        nvil(lambda z: z.float(), family, baseline=torch.zeros(4, 1))


def test_sums_of_integers_and_booleans_are_not_truncated():
    support = sparsemax(torch.tensor([[1.0, 0.8, -3.0], [0.0, 5.0, 0.0]]))  # weights 0.6 and 0.4; 1
    torch.testing.assert_close(support.expectation(support.choices), torch.tensor([0.4, 1.0]))
    torch.testing.assert_close(support.expectation(support.choices.int()), torch.tensor([0.4, 1.0]))
    correct = marginalise(lambda z, y: z == y, support, torch.tensor([0, 1]))
    torch.testing.assert_close(correct, torch.tensor([0.6, 1.0]))


# the rounding of log(1/4000), of which the probabilities are made
@pytest.mark.parametrize(("dtype", "tolerance"), ((torch.float16, 0.005), (torch.bfloat16, 0.03)))
def test_sums_in_half_precision_do_not_stop_growing(dtype, tolerance):
    scores = torch.zeros(1, 4000, dtype=dtype, requires_grad=True)
    total = dense(lambda z: torch.ones(len(z), dtype=dtype), Categories(scores))
    assert total.dtype == dtype and abs(float(total.detach()) - 1) < tolerance
    total.sum().backward()
    assert scores.grad.dtype == dtype and scores.grad.isfinite().all()
