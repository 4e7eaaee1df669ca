"""The paired tests compared with independent bootstraps and randomisations, and on known cases."""

import itertools
import logging
import random

import numpy as np
import pytest
import sacrebleu
from helpers import cells_of
from sacrebleu.significance import PairedTest

from user_dir.tables import significance
from user_dir.translation.compared_systems import System
from user_dir.translation.paired import compare, comparison_tables
from user_dir.translation.significance import difference, holm, resampled_scores

logging.getLogger("sacrebleu").setLevel(logging.ERROR)
SAMPLES = 200
REFERENCES = [
    f"{who} {does} the {which} {what} ."
    for who, does, which, what in itertools.product(
        ("a man", "two girls", "the old dog"),
        ("sees", "paints"),
        ("red", "very small"),
        ("car", "wall", "sea"),
    )
]


def bleu():
    return sacrebleu.metrics.BLEU(force=True)


def damaged(share: float, seed: int) -> list[str]:
    """The references with a share of their words replaced."""
    dice = random.Random(seed)
    return [
        " ".join("blah" if dice.random() < share else word for word in line.split()) for line in REFERENCES
    ]


def system(name: str, *translations: list[str]) -> System:
    return System(name, (), translations)


def run(*systems: System, test: str = "bs", metrics=None, samples: int = SAMPLES, margin=None) -> dict:
    return compare(systems, [REFERENCES], metrics or {"BLEU": bleu()}, test, samples, margin)


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_one_seed_equals_the_test_of_sacrebleu(test):
    systems = [system("a", damaged(0.2, 1)), system("b", damaged(0.25, 2)), system("c", damaged(0.1, 3))]
    metrics = {"BLEU": bleu(), "chrF": sacrebleu.metrics.CHRF()}
    report = run(*systems, test=test, metrics=metrics)
    named = [(each.name, each.translations[0]) for each in systems]
    own_metrics = {"BLEU": bleu(), "chrF": sacrebleu.metrics.CHRF()}
    signatures, results = PairedTest(named, own_metrics, [REFERENCES], test_type=test, n_samples=SAMPLES)()
    for name, theirs in (("BLEU", "BLEU"), ("chrF", "chrF2")):
        assert report["signatures"][name] == str(signatures[theirs])
        for row, result in zip(report["systems"], results[theirs]):
            assert row[name]["mean"] == pytest.approx(result.score)
            assert row[name].get("p") == result.p_value
            assert row[name]["seeds"][0]["score"] == pytest.approx(result.score)
            if test == "bs":
                assert row[name]["ci"] == pytest.approx(result.ci)
    rows = report["systems"]
    assert rows[2]["BLEU"]["delta"] == rows[2]["BLEU"]["mean"] - rows[0]["BLEU"]["mean"]


def test_several_seeds_are_resampled_by_sentence():
    """Compared with a loop over resamples of sentences, each with the translations of both seeds."""
    ours, theirs = [damaged(0.2, 1), damaged(0.3, 2)], [damaged(0.17, 3), damaged(0.27, 4)]
    drawn = np.random.default_rng(12345).choice(len(REFERENCES), (SAMPLES, len(REFERENCES)), replace=True)

    def score(translations, lines):
        both = [seed[line] for seed in translations for line in lines]
        return bleu().corpus_score(both, [[REFERENCES[line] for _ in translations for line in lines]]).score

    everything = range(len(REFERENCES))
    difference = abs(score(ours, everything) - score(theirs, everything))
    resampled = np.array([abs(score(ours, lines) - score(theirs, lines)) for lines in drawn])
    exceeding = int((resampled - resampled.mean() > difference).sum())
    row = run(system("ours", *ours), system("theirs", *theirs))["systems"][1]["BLEU"]
    assert row["p"] == pytest.approx((exceeding + 1) / (SAMPLES + 1), abs=1.5 / SAMPLES)  # float32 sums
    scores = [seed["score"] for seed in row["seeds"]]
    assert row["mean"] == pytest.approx(sum(scores) / 2)
    assert row["std"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_known_results(test):
    """A copy of the baseline does not differ from it; a copy of the references is better."""
    base = damaged(0.3, 1), damaged(0.3, 2)
    report = run(
        system("base", *base), system("copy", *base), system("truth", REFERENCES, REFERENCES), test=test
    )
    _, copy, truth = (row["BLEU"] for row in report["systems"])
    assert copy["p"] == 1 and copy["delta"] == 0 and [seed["delta"] for seed in copy["seeds"]] == [0, 0]
    assert truth["mean"] == pytest.approx(100) and truth["delta"] > 20
    assert truth["p"] == pytest.approx(1 / (SAMPLES + 1))


def test_intervals_p_values_and_verdicts_are_those_of_significance():
    base, near = [damaged(0.3, i) for i in (1, 2, 3)], [damaged(0.25, i) for i in (4, 5, 6)]
    metrics = {"BLEU": bleu(), "chrF": sacrebleu.metrics.CHRF()}
    systems = system("base", *base), system("near", *near), system("copy", *base)
    report = compare(systems, [REFERENCES], metrics, "bs", SAMPLES, margin=3)
    rows = [row[name] for row in report["systems"][1:] for name in metrics]
    counts = [
        [bleu()._extract_corpus_statistics(lines, [REFERENCES]) for lines in each] for each in (base, near)
    ]
    resampled = [
        resampled_scores(each, lambda row: bleu()._compute_score_from_stats(row).score) for each in counts
    ]
    deltas = [seed["delta"] for seed in rows[0]["seeds"]]
    expected = difference(deltas, (resampled[1] - resampled[0]).T)
    assert rows[0]["interval"] == expected.interval()
    assert rows[0]["p_seeds"] == expected.p_differs() and rows[0]["p_margin"] == expected.p_equivalent(3)
    for key in ("p", "p_seeds", "p_margin"):
        assert [row[f"{key}_holm"] for row in rows] == holm([row[key] for row in rows])
    assert rows[2]["verdict"] == rows[3]["verdict"] == "equivalent", "a copy"
    for row in rows:
        inside = row["interval"][0] > -3 and row["interval"][1] < 3 and row["p_margin_holm"] < 0.05
        differs = row["p_seeds_holm"] < 0.05
        assert (row["verdict"] == "equivalent") == inside
        assert inside or (row["verdict"] in ("higher", "lower")) == differs
    assert "verdict" not in run(*systems)["systems"][1]["BLEU"], "without a margin"


def test_a_large_loss_is_lower_and_a_single_seed_gets_no_verdict():
    base, bad = [damaged(0.1, i) for i in (1, 2, 3)], [damaged(0.6, i) for i in (4, 5, 6)]
    report = compare([system("base", *base), system("bad", *bad)], [REFERENCES], {"BLEU": bleu()}, margin=0.5)
    assert report["systems"][1]["BLEU"]["verdict"] == "lower"
    single = compare(
        [system("base", base[0]), system("bad", bad[0])], [REFERENCES], {"BLEU": bleu()}, margin=0.5
    )
    assert single["systems"][1]["BLEU"]["verdict"] is None
    text = comparison_tables(single)
    assert "One seed" in text and "margin" not in text


def test_tables():
    base, other = (damaged(0.3, 1), damaged(0.3, 2)), (damaged(0.1, 3), damaged(0.1, 4))
    report = run(system("base", *base), system("other", *other), margin=0.5)
    text = comparison_tables(report)
    row = report["systems"][1]["BLEU"]
    rows = cells_of(text)
    low, high = row["interval"]
    assert rows[3] == [
        "BLEU",
        "other",
        f"{row['mean']:.2f} ± {row['std']:.2f}",
        f"{row['delta']:+.2f}",
        ", ".join(f"{seed['delta']:+.2f}" for seed in row["seeds"]),
        f"{low:+.2f} to {high:+.2f}",
        significance(row["p_seeds_holm"]),
        row["verdict"],
        significance(row["p_holm"]),
    ]
    assert report["signatures"]["BLEU"] in text and "36 sentences" in text
    far = run(system("base", *base), system("truth", REFERENCES, REFERENCES), test="ar", samples=4000)
    assert "| < 0.001 " in comparison_tables(far) and "margin" not in comparison_tables(far)
    single = comparison_tables(run(system("base", base[0]), system("other", other[0])))
    assert "by seed" not in single and "±" not in single
