from itertools import combinations

from scipy.stats import chisquare

from user_dir.corpora.sampling import sample


def test_the_sample_has_its_size_and_keeps_the_order():
    for count, size in ((0, 3), (1, 1), (5, 3), (5, 5), (5, 9), (1000, 1), (1000, 999)):
        drawn = list(sample(range(count), count, size))
        assert len(drawn) == min(count, size) and drawn == sorted(set(drawn))


def test_a_seed_gives_the_same_sample_everywhere():
    """By hand; Python documents that the numbers of Random(1).random() do not change."""
    assert list(sample("abcd", 4, 2)) == ["a", "d"]  # 0.134·4 < 2; 0.847·3 ≥ 1; 0.764·2 ≥ 1; 0.255·1 < 1
    samples = {tuple(sample(range(100), 100, 10, seed)) for seed in range(20)}
    assert len(samples) == 20


def test_every_subset_is_as_likely_as_any_other():
    counts = dict.fromkeys(combinations(range(6), 3), 0)
    for seed in range(4000):
        counts[tuple(sample(range(6), 6, 3, seed))] += 1
    assert chisquare(list(counts.values())).pvalue > 0.001
