"""Systems read and compared: paired tests against independent ones, known cases, the command."""

from __future__ import annotations

import itertools
import json
import logging
import random
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from user_dir.commands.compare import main
from user_dir.errors import UserError
from user_dir.translation.compare import System, compare, comparison_tables, read_systems
from user_dir.translation.significance import difference, holm, resampled_scores

logging.getLogger("sacrebleu").setLevel(logging.ERROR)
SAMPLES = 60
REFERENCES = [
    f"{who} {does} the {which} {what} ."
    for who, does, which, what in itertools.product(
        ("a man", "two girls", "the old dog"),
        ("sees", "paints"),
        ("red", "very small"),
        ("car", "wall", "sea"),
    )
]


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def evaluation(tmp_path):
    """A function that writes an evaluation like evaluate.py, and returns the path of the JSON."""

    def make(name, lines=("a b", "c d"), references=None, signature="nrefs:1|case:mixed|tok:13a", **more):
        references = references or write(tmp_path / "ref.en", "a b", "c e")
        record = {"test_set": "test", "direction": "de-en", "references": str(references), **more}
        write(tmp_path / name / f"test.{record['direction'][-2:]}", *lines)
        return write(tmp_path / name / "test.json", json.dumps({**record, "bleu_signature": signature}))

    return make


def test_evaluations_provide_references_and_settings(evaluation, tmp_path):
    files = [evaluation(name, signature="nrefs:1|case:lc|tok:ja-mecab-0.996-IPA") for name in "ab"]
    plain = write(tmp_path / "c.en", "x", "y")
    systems, test_set = read_systems([("a", files[:1]), ("b", files[1:]), ("c", [plain])])
    assert [model.translations for model in systems] == [[["a b", "c d"]], [["a b", "c d"]], [["x", "y"]]]
    assert test_set.references == [["a b", "c e"]] and test_set.language == "en"
    assert (test_set.tokenize, test_set.lowercase) == ("ja-mecab", True)
    _, test_set = read_systems([("a", files[:1]), ("b", files[1:])], [plain, plain])
    assert test_set.references == [["x", "y"]] * 2 and test_set.tokenize == "ja-mecab"


def test_incomparable_systems_are_refused(evaluation, tmp_path):
    a, short = evaluation("a"), write(tmp_path / "short.en", "x")
    for others, told in (
        ([], "give --system twice"),
        ([("b", [a, a])], "as many files"),
        ([("b", [short])], "short.en has 1 lines, but the references have 2"),
        ([("b", [write(tmp_path / "half.json", '{"test_set": "test"}')])], "half.json is not an evaluation"),
        ([("b", [evaluation("c", references=write(tmp_path / "ref2.en", "a b", "c f"))])], "references"),
        ([("b", [evaluation("d", signature="nrefs:1|case:lc|tok:13a")])], "settings"),
        ([("b", [evaluation("e", direction="de-fr")])], "language"),
        ([("b", [evaluation("f", left_out_lines=[2])])], "leaves out"),
    ):
        with pytest.raises(UserError, match=told):
            read_systems([("a", [a]), *others])
    with pytest.raises(UserError, match="2 lines, but the references have 2 and 1"):
        read_systems([("a", [a]), ("b", [a])], [write(tmp_path / "ref1.en", "x", "y"), short])
    with pytest.raises(UserError, match="require --ref"):
        read_systems([("a", [short]), ("b", [short])])


def test_the_command_writes_its_tables(tmp_path, capsys):
    reference = write(tmp_path / "test.en", "one two three four five", "one", "six seven eight nine ten")
    other = write(tmp_path / "other.en", "one two three four five", "wrong", "six seven eight nine ten")
    command = ["--system", "a", str(other), "--system", "b", str(reference), "--ref", str(reference)]
    command += ["--metrics", "BLEU", "TER", "--samples", "10", "--output", str(tmp_path / "table.md")]
    main(command)
    assert (tmp_path / "table.md").read_text() == capsys.readouterr().out
    a, b = json.loads((tmp_path / "table.json").read_text())["systems"]
    assert a["BLEU"]["mean"] < b["BLEU"]["mean"] == pytest.approx(100)
    assert a["TER"]["mean"] == pytest.approx(100 / 11) and b["TER"]["mean"] == 0


def bleu():
    return sacrebleu.metrics.BLEU(force=True)


def damaged(share: float, seed: int) -> list[str]:
    """The references with a share of their words replaced."""
    dice = random.Random(seed)
    return [
        " ".join("blah" if dice.random() < share else word for word in line.split()) for line in REFERENCES
    ]


def system(name: str, *translations: list[str]) -> System:
    return System(name, [], list(translations))


def run(*systems: System, test: str = "bs", metrics=None, samples: int = SAMPLES, margin=None) -> dict:
    return compare(systems, [REFERENCES], metrics or {"BLEU": bleu()}, test, samples, margin)


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_one_seed_equals_the_test_of_sacrebleu(test):
    systems = [system("a", damaged(0.2, 1)), system("b", damaged(0.25, 2)), system("c", damaged(0.1, 3))]
    report = run(*systems, test=test, metrics={"BLEU": bleu(), "chrF": sacrebleu.metrics.CHRF()})
    named = [(model.name, model.translations[0]) for model in systems]
    own_metrics = {"BLEU": bleu(), "chrF": sacrebleu.metrics.CHRF()}
    signatures, results = PairedTest(named, own_metrics, [REFERENCES], test_type=test, n_samples=SAMPLES)()
    for name, theirs in (("BLEU", "BLEU"), ("chrF", "chrF2")):
        assert report["signatures"][name] == str(signatures[theirs])
        for row, result in zip(report["systems"], results[theirs]):
            assert row[name]["mean"] == row[name]["seeds"][0]["score"] == pytest.approx(result.score)
            assert row[name].get("p") == result.p_value
    rows = report["systems"]
    assert rows[2]["BLEU"]["delta"] == rows[2]["BLEU"]["mean"] - rows[0]["BLEU"]["mean"]


def test_a_difference_in_a_single_sentence_is_no_evidence():
    """Each swap gives the same difference or none."""
    other = [REFERENCES[0].replace("a", "the"), *REFERENCES[1:]]
    report = run(system("a", REFERENCES), system("b", other), test="ar")
    assert report["systems"][1]["BLEU"]["p"] == 1


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


def test_known_results():
    """A copy of the baseline does not differ from it; a copy of the references is better."""
    base = damaged(0.3, 1), damaged(0.3, 2)
    systems = system("base", *base), system("copy", *base), system("truth", REFERENCES, REFERENCES)
    _, copy, truth = (row["BLEU"] for row in run(*systems)["systems"])
    assert copy["p"] == 1 and copy["delta"] == 0 and [seed["delta"] for seed in copy["seeds"]] == [0, 0]
    assert truth["mean"] == pytest.approx(100) and truth["delta"] > 20
    assert truth["p"] == pytest.approx(1 / (SAMPLES + 1))


def test_intervals_p_values_and_verdicts_are_those_of_significance():
    base, near = [damaged(0.3, i) for i in (1, 2, 3)], [damaged(0.25, i) for i in (4, 5, 6)]
    metrics = {"BLEU": bleu(), "chrF": sacrebleu.metrics.CHRF()}
    systems = system("base", *base), system("near", *near), system("copy", *base)
    report = run(*systems, metrics=metrics, margin=3)
    rows = [row[name] for row in report["systems"][1:] for name in metrics]
    counts = [
        [bleu()._extract_corpus_statistics(lines, [REFERENCES]) for lines in seeds] for seeds in (base, near)
    ]
    resampled = [
        resampled_scores(stats, lambda row: bleu()._compute_score_from_stats(row).score) for stats in counts
    ]
    expected = difference([seed["delta"] for seed in rows[0]["seeds"]], (resampled[1] - resampled[0]).T)
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
    assert run(system("a", *base), system("b", *bad), margin=0.5)["systems"][1]["BLEU"]["verdict"] == "lower"
    single = run(system("base", base[0]), system("bad", bad[0]), margin=0.5)
    assert single["systems"][1]["BLEU"]["verdict"] is None
    text = comparison_tables(single)
    assert "One seed" in text and not any(word in text for word in ("margin", "by seed", "±"))
