"""The scaling of queries by the number of keys, beside loops."""

import math

import pytest
import torch

from user_dir.models.length_scaling import LengthScaling, visible_keys


@pytest.mark.parametrize("kind", ("none", "causal", "bool", "float", "causal and float"))
@pytest.mark.parametrize("padded", (False, True))
def test_visible_keys(kind, padded):
    queries = keys = 5
    padding = torch.tensor([[True, True, False, False, False], [False] * 5]) if padded else None
    hidden = torch.rand(queries, keys) < 0.4
    mask = {"bool": hidden, "float": torch.zeros(5, 5).masked_fill(hidden, -math.inf)}.get(kind.split()[-1])
    causal = kind.startswith("causal")
    counts = visible_keys(padding, mask, causal, queries, torch.zeros(2, 1, keys, 3)).expand(2, queries)
    for b in range(2):
        for t in range(queries):
            seen = sum(
                not (causal and s > t)
                and not (padded and bool(padding[b, s]))
                and not (mask is not None and bool(hidden[t, s]))
                for s in range(keys)
            )
            assert counts[b, t] == seen


def test_equals_its_formula():
    scaling = LengthScaling(6, 2).double()
    query = torch.randn(3, 2, 4, 5, dtype=torch.float64)
    inputs = torch.randn(4, 3, 6, dtype=torch.float64)
    keys = torch.tensor([[1.0, 2.0, 3.0, 50.0]]).expand(3, 4)
    scaled = scaling(query, inputs, keys)
    for b in range(3):
        for h in range(2):
            for t in range(4):
                beta = math.log1p(math.exp(float(scaling.beta.weight[h] @ inputs[t, b])))
                gamma = 2 * math.tanh(float(scaling.gamma.weight[h] @ inputs[t, b]))
                factor = 1 + beta * math.log(max(2.0, float(keys[b, t]))) ** gamma
                torch.testing.assert_close(scaled[b, h, t], factor * query[b, h, t], rtol=1e-6, atol=1e-9)


def test_sentences_of_several_hypotheses():
    scaling, query, inputs = LengthScaling(6, 2), torch.randn(4, 2, 1, 5), torch.randn(1, 4, 6)
    keys = torch.tensor([[3.0], [9.0]])
    expected = scaling(query, inputs, torch.tensor([[3.0], [3.0], [9.0], [9.0]]))
    assert torch.equal(scaling(query, inputs, keys), expected)
