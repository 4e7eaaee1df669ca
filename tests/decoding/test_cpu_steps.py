"""The kernels of translation against plain PyTorch."""

import pytest
import torch
from helpers import computed

from user_dir.attention.dense import dense_attention
from user_dir.decoding.cpu_steps import Cache, Rules, add_norm, attend, best

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


def cached(queries: int, heads: int, head_dim: int, lengths: list[int], single: bool, dtype: torch.dtype):
    """Random queries, a cache in random order, and the keys and values (R, S, 2·C) that they find there."""
    channels, most = heads * head_dim, max(lengths)
    sources = torch.randint(len(lengths), (queries,), dtype=torch.int32)
    rows = 3 * len(lengths) * most
    slabs = [torch.randn(rows, 2 * channels, dtype=dtype) for _ in range(1 if single else most)]
    places = torch.stack([torch.randperm(rows)[:most] for _ in lengths]).to(torch.int32)
    counts = torch.tensor(lengths, dtype=torch.int32)
    cache = Cache(slabs, places, counts, sources, most, single)
    read = torch.stack(
        [
            torch.stack([slabs[0 if single else j][places[source, j]] for j in range(most)])
            for source in sources.tolist()
        ]
    )
    return torch.randn(queries, channels, dtype=dtype), cache, read


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("single", (True, False))
@pytest.mark.parametrize("heads, head_dim", ((1, 3), (3, 16), (4, 37), (8, 130)))
@pytest.mark.parametrize("alpha", (1.0, 1.3, 1.5, 2.0, 2.5))
def test_attention_to_caches(dtype, single, heads, head_dim, alpha):
    query, cache, read = cached(11, heads, head_dim, [1, 9, 4, 21], single, dtype)
    alphas = torch.full((heads,), alpha, dtype=torch.float64)
    alphas[1:2] = 1.7 if alpha <= 2 else 3.0  # α differs between heads
    key, value = (
        part.unflatten(-1, (heads, head_dim)).transpose(1, 2).double() for part in read.chunk(2, dim=-1)
    )
    padding = torch.arange(cache.most) >= cache.counts[cache.sources.long()][:, None]
    expected, _ = computed(
        dense_attention,
        query.double().view(11, heads, 1, head_dim),
        key,
        value,
        alphas.view(-1, 1, 1),
        padding,
    )
    found = attend(query, cache, alphas)
    torch.testing.assert_close(found.double(), expected.flatten(1), rtol=0, atol=TOLERANCE[dtype] * 3)


def test_a_query_without_keys_gets_zeros_and_one_with_nan_gets_nan():
    query, cache, _ = cached(6, 2, 5, [4, 3], True, torch.float64)
    cache.sources = torch.tensor([0, 1, 0, 1, 0, 1], dtype=torch.int32)
    cache.counts = torch.tensor([4, 0], dtype=torch.int32)
    query[2, 5:] = torch.nan
    query[4, :5] = torch.inf
    found = attend(query, cache, torch.tensor([1.2, 1.5], dtype=torch.float64)).view(6, 2, 5)
    assert (found[1::2] == 0).all()
    broken = torch.zeros(3, 2, dtype=torch.bool)
    broken[1, 1] = broken[2, 0] = True
    assert torch.equal(found[::2].isnan().all(-1), broken)
    assert torch.equal(found[::2].isnan().any(-1), broken)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("width", (1, 7, 16, 50))
def test_sum_and_norm(dtype, width):
    x, update = torch.randn(2, 9, width, dtype=dtype)
    norm = torch.nn.LayerNorm(width, eps=1e-3).to(dtype)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    for added in (update, None):
        total = x if added is None else x + added
        given = x.clone()
        found = add_norm(given, added, norm)
        torch.testing.assert_close(found, norm(total), rtol=0, atol=TOLERANCE[dtype])
        torch.testing.assert_close(given, total, rtol=0, atol=0)


@pytest.mark.parametrize("symbols", (23, 1000))
@pytest.mark.parametrize("wanted", (1, 6, 20))
@pytest.mark.parametrize("temperature, penalty", ((1.0, 0.0), (0.7, 2.0), (3.0, -5.0)))
def test_best_continuations(symbols, wanted, temperature, penalty):
    logits = torch.randn(3, 4, symbols, dtype=torch.float64) * 4
    scores = -torch.rand(3, 4, dtype=torch.float64)
    banned = torch.tensor([1, symbols - 1])
    expected = (logits / temperature).log_softmax(-1)
    expected[..., 3] -= penalty
    expected[..., banned] = -torch.inf
    totals, at = (expected + scores[..., None]).flatten(1).topk(wanted)
    found, chosen, of = best(logits.clone(), scores, wanted, Rules(banned, 3, penalty, temperature))
    torch.testing.assert_close(found, totals, rtol=1e-12, atol=1e-12)
    assert torch.equal(of * symbols + chosen, at)
    only, chosen, of = best(logits.clone(), scores, 4, Rules(banned, 3, penalty, temperature), only=2)
    torch.testing.assert_close(only, (expected[..., 2] + scores).sort(descending=True).values)
    assert (chosen == 2).all()
    assert torch.equal(of, (expected[..., 2] + scores).argsort(descending=True))


@pytest.mark.parametrize("symbols", (23, 1000))
@pytest.mark.parametrize("wanted", (1, 6, 60))
@pytest.mark.parametrize("penalty", (0.0, 2.0, -5.0))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_best_continuations_by_probabilities(symbols, wanted, penalty, dtype):
    p = (torch.randn(3, 4, symbols, dtype=dtype) - 1).relu()
    p[..., 3] = 0.2
    p[1, 2] = 0
    p /= p.sum(-1, keepdim=True).clamp_min(1)
    scores = -torch.rand(3, 4, dtype=dtype)
    scores[2, 0] = -torch.inf
    banned = torch.tensor([1, symbols - 1])
    rules = Rules(banned, 3, penalty, 1.0, sparse=True)
    expected = p.log()
    expected[..., 3] -= penalty
    only, _, of = best(p.clone(), scores, 4, rules, only=2)
    there = expected[..., 2] + scores
    torch.testing.assert_close(only, there.sort(descending=True).values)
    expected[..., banned] = -torch.inf
    totals, at = (expected + scores[..., None]).flatten(1).topk(wanted)
    found, chosen, of = best(p.clone(), scores, wanted, rules)
    torch.testing.assert_close(found, totals)
    possible = totals.isfinite()
    if dtype == torch.float64:  # otherwise some are equal but for rounding
        assert torch.equal((of * symbols + chosen)[possible], at[possible])
    assert bool(possible.all()) == (wanted < 60 or symbols == 1000)


def test_nothing_follows_a_nan_and_what_is_missing_is_impossible():
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    logits[0, 1, 2] = torch.nan
    logits[1] = torch.nan
    scores = torch.zeros(2, 3, dtype=torch.float64)
    for sparse in (False, True):
        given = logits.abs() if sparse else logits.clone()
        found, _, of = best(given, scores, 12, Rules(torch.tensor([0]), 3, 0.0, 1.0, sparse))
        assert torch.equal(found.isfinite().sum(1), torch.tensor([8, 0]))
        assert 1 not in of[0, :8]


def test_results_do_not_depend_on_the_number_of_threads():
    query, cache, _ = cached(500, 4, 32, [30, 7, 19], True, torch.float32)
    x, update = torch.randn(2, 4000, 64)
    logits, scores = torch.randn(40, 5, 997), torch.randn(40, 5)
    alpha = torch.tensor([1.0, 1.2, 1.5, 2.0], dtype=torch.float64)
    rules = Rules(torch.tensor([1]), 3, 0.5, 1.0)
    norm = torch.nn.LayerNorm(64)
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found = best(logits.clone(), scores, 10, rules)
            results.append([attend(query, cache, alpha), add_norm(x.clone(), update, norm), *found])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other))
