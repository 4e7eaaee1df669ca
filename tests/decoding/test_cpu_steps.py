"""The kernels of translation against plain PyTorch."""

from dataclasses import replace

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
    found, weights = attend(query, cache, alphas, need_weights=True)
    torch.testing.assert_close(found.double(), expected.flatten(1), rtol=0, atol=TOLERANCE[dtype] * 3)
    values = torch.einsum("rhs,rhsd->rhd", weights.double(), value)
    torch.testing.assert_close(values, expected[:, :, 0], rtol=0, atol=TOLERANCE[dtype] * 3)
    assert (weights.transpose(1, 2)[padding] == 0).all()
    same, none = attend(query, cache, alphas)
    assert torch.equal(same, found) and none is None


def test_a_query_without_keys_gets_zeros_and_one_with_nan_gets_nan():
    query, cache, _ = cached(6, 2, 5, [4, 3], True, torch.float64)
    cache.sources = torch.tensor([0, 1, 0, 1, 0, 1], dtype=torch.int32)
    cache.counts = torch.tensor([4, 0], dtype=torch.int32)
    query[2, 5:] = torch.nan
    query[4, :5] = torch.inf
    alpha = torch.tensor([1.2, 1.5], dtype=torch.float64)
    found, weights = attend(query, cache, alpha, need_weights=True)
    found = found.view(6, 2, 5)
    assert (weights[1::2] == 0).all()
    assert (found[1::2] == 0).all()
    broken = torch.zeros(3, 2, dtype=torch.bool)
    broken[1, 1] = broken[2, 0] = True
    assert torch.equal(found[::2].isnan().all(-1), broken)
    assert torch.equal(found[::2].isnan().any(-1), broken)
    assert torch.equal(weights[::2].isnan().all(-1), broken)


@pytest.mark.parametrize("single", (True, False))
def test_gathered_keys_and_values(single):
    """Those of each source, in the order of queries, of which a source has several in a row."""
    _, cache, _ = cached(1, 2, 5, [4, 1, 3], single, torch.float64)
    cache.sources = torch.tensor([2, 2, 0, 0], dtype=torch.int32) if single else None
    cache.counts = cache.counts if single else None
    found, absent = cache.gathered()
    sources = [2, 0] if single else [0, 1, 2]
    assert len(found) == len(sources) and (absent is None) != single
    for row, source in enumerate(sources):
        for j in range(4 if not single else int(cache.counts[source])):
            assert torch.equal(found[row, j], cache.slabs[0 if single else j][cache.places[source, j]])
        assert absent is None or torch.equal(absent[row], torch.arange(4) >= cache.counts[source])


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
@pytest.mark.parametrize("penalty", (0.0, 2.0, -5.0))
def test_best_continuations(symbols, wanted, penalty):
    logits = torch.randn(3, 4, symbols, dtype=torch.float64) * 4
    scores = -torch.rand(3, 4, dtype=torch.float64)
    banned = torch.tensor([1, symbols - 1])
    expected = logits.log_softmax(-1)
    expected[..., 3] -= penalty
    free = expected.clone()
    expected[..., banned] = -torch.inf
    totals, at = (expected + scores[..., None]).flatten(1).topk(wanted)
    rules = Rules(banned, 3, penalty)
    found, chosen, of = best(logits.clone(), scores, wanted, rules)
    torch.testing.assert_close(found, totals, rtol=1e-12, atol=1e-12)
    assert torch.equal(of * symbols + chosen, at)
    for symbol in (2, 1, 3):  # also a banned one, and the unknown one
        only, chosen, of = best(logits.clone(), scores, 4, replace(rules, only=torch.full((12,), symbol)))
        there = free[..., symbol] + scores
        torch.testing.assert_close(only, there.sort(descending=True).values)
        assert (chosen == symbol).all()
        assert torch.equal(of, there.argsort(descending=True))


@pytest.mark.parametrize("sparse", (False, True))
def test_rules_of_single_hypotheses(sparse):
    """Some symbols are banned for some hypotheses, and others may continue with one symbol only."""
    p = torch.randn(3, 4, 23, dtype=torch.float64).mul(2).softmax(-1)
    scores = -torch.rand(3, 4, dtype=torch.float64)
    scores[1, 1] = -torch.inf
    only = torch.tensor([-1, 5, -1, 3, 7, -1, -1, -1, 22, -1, -1, -1])
    repeated = [[], [4], [2, 9, 20, 9], [], [7], [5], [], [0], [], [], [22], [3]]
    starts = torch.tensor([0, *map(len, repeated)]).cumsum(0)
    expected = p.log()
    expected[..., 3] -= 0.5
    for row, (symbol, symbols) in enumerate(zip(only.tolist(), repeated)):
        one = expected.view(12, 23)[row]
        one[symbols] = -torch.inf
        one[[x for x in range(23) if x not in (symbol,)] if symbol >= 0 else [1]] = -torch.inf
    totals, at = (expected + scores[..., None]).flatten(1).topk(8)
    flat = torch.tensor([symbol for symbols in repeated for symbol in symbols])
    rules = Rules(torch.tensor([1]), 3, 0.5, sparse, only, flat, starts)
    given = p if sparse else p.log() + 2
    found, chosen, of = best(given.clone(), scores, 8, rules)
    torch.testing.assert_close(found, totals)
    assert torch.equal(of * 23 + chosen, at)
    for first in range(3):  # in parts, too
        part = slice(4 * first, 4 * first + 4)
        values, *_ = best(given[first : first + 1].clone(), scores[first : first + 1], 8, rules.of(part))
        assert torch.equal(values, found[first : first + 1])


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
    rules = Rules(banned, 3, penalty, sparse=True)
    expected = p.log()
    expected[..., 3] -= penalty
    only, _, of = best(p.clone(), scores, 4, replace(rules, only=torch.full((12,), 2)))
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
        found, _, of = best(given, scores, 12, Rules(torch.tensor([0]), 3, 0.0, sparse))
        assert torch.equal(found.isfinite().sum(1), torch.tensor([8, 0]))
        assert 1 not in of[0, :8]


def test_results_do_not_depend_on_the_number_of_threads():
    query, cache, _ = cached(500, 4, 32, [30, 7, 19], True, torch.float32)
    x, update = torch.randn(2, 4000, 64)
    logits, scores = torch.randn(40, 5, 997), torch.randn(40, 5)
    alpha = torch.tensor([1.0, 1.2, 1.5, 2.0], dtype=torch.float64)
    rules = Rules(torch.tensor([1]), 3, 0.5)
    norm = torch.nn.LayerNorm(64)
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found = best(logits.clone(), scores, 10, rules)
            results.append([*attend(query, cache, alpha, True), add_norm(x.clone(), update, norm), *found])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other))
