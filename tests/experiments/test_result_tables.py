"""Tables of results over seeds."""

import copy
import json
import statistics

import pytest

from user_dir.errors import UserError
from user_dir.experiments.result_tables import experiment_tables, read_result


def result(run: str, bleu: float, seconds, corpus: str = "mine") -> dict:
    scores = {
        "bleu": bleu,
        "chrf": 50.0,
        "beam": 5,
        "bleu_signature": "bleu's",
        "chrf_signature": "chrf's",
        "sentences_per_second": 20.0,
    }
    return {
        "run": run,
        "corpus": corpus,
        "direction": "de-ja",  # no tokenized BLEU
        "averaged_epochs": 3,
        "parameters": 1234567,
        "validation": {"loss": 4.0, "ppl": 5.0},
        "training": {
            "processor_seconds": seconds,
            "tokens_per_second": 2000.0,
            "tokens_per_processor_second": None,
        },
        "evaluation": {"valid": {**scores, "bleu": 1.0}, "exam": scores},
        "heads": {"encoder_self": {"alpha_mean": 1.25, "density_mean": 0.5}},
    }


def rows(text: str) -> list[dict[str, str]]:
    """All rows of all tables, by header."""
    found, headers = [], []
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            headers = []
        elif not headers:
            headers = cells
        elif not cells[0].startswith("--"):
            found.append(dict(zip(headers, cells)))
    return found


def test_mean_and_spread_over_seeds_and_a_table_for_each_corpus():
    results = [result("a", 30.0, 60), result("b", 32.0, None), result("a", 31.0, 120)]
    text = experiment_tables([*results, result("a", 10.0, 60, corpus="other")])
    scores_a, scores_b, costs_a, costs_b, other, _ = rows(text)
    assert scores_a["run"] == "a" and scores_a["seeds"] == "2"
    assert scores_a["exam BLEU"] == f"30.50 ± {statistics.stdev([30, 31]):.2f}"
    assert scores_b["exam BLEU"] == "32.00" and scores_b["valid BLEU"] == "1.00"
    assert "tok lc" not in text
    assert costs_a["training, processor min"] == f"1.5 ± {statistics.stdev([1, 2]):.1f}"
    assert costs_b["training, processor min"] == costs_b["tokens/processor s"] == ""
    assert costs_a["parameters"] == "1,234,567" and costs_b["encoder self α"] == "1.250"
    assert costs_b["decoder context density"] == ""
    assert other["exam BLEU"] == "10.00"
    assert "last 3 epochs, beam 5" in text and "bleu's" in text


def test_tokenized_bleu_where_a_run_has_it():
    scored = result("b", 30.0, 60)
    scored["evaluation"]["exam"]["tokenized_bleu_lowercased"] = 33.0
    without, found, *_ = rows(experiment_tables([result("a", 30.0, 60), scored]))
    assert (without["exam BLEU tok lc"], found["exam BLEU tok lc"]) == ("", "33.00")


def test_the_support_of_sparse_outputs():
    sparse = result("b", 30.0, 60)
    sparse["validation"] = {"loss": 1.0, "ppl": None, "support": 12.4}
    dense, found, *_ = rows(experiment_tables([result("a", 30.0, 60), sparse]))
    assert (dense["valid support"], found["valid support"], found["valid ppl"]) == ("", "12", "")
    assert "support" not in experiment_tables([result("a", 30.0, 60)])


def test_what_search_found_where_it_was_measured():
    def searched(share: float) -> dict:
        found = {
            "beams": [
                {"beam": 1, "bleu": 20.0, "length_ratio": 1},
                {"beam": 9, "bleu": 21.0, "length_ratio": 0.9},
            ],
            "calibration": {"expected_calibration_error": 0.0312},
            "exact": {
                "completed": 0.5,
                "empty_is_most_probable": share,
                "empty_may_be_most_probable": 0.5,
                "empty_is_possible": 0.75,
            },
        }
        return {**result("a", 30.0, 60), "search": {"exam": found}}

    without = {**result("b", 30.0, 60), "search": {}}
    text = experiment_tables([searched(0.1), searched(0.3), without, result("c", 30.0, 60)])
    (found,) = (row for row in rows(text) if "BLEU, beam 9" in row)
    assert found["run"] == "a" and found["BLEU, beam 1"] == "20.00"
    assert found["length ratio, beam 9"] == "0.900" and found["calibration error %"] == "3.12"
    assert found["empty is best %"] == f"20.0 ± {100 * statistics.stdev([0.1, 0.3]):.1f}"
    assert (found["at most %"], found["empty is possible %"]) == ("50.0", "75.0")
    assert "mine de-ja, search on exam" in text

    quick = searched(0.1)
    del quick["search"]["exam"]["exact"]
    (found,) = (row for row in rows(experiment_tables([quick])) if "BLEU, beam 9" in row)
    assert found["searched exactly %"] == found["empty is possible %"] == ""


def test_latent_alignments_have_columns_of_their_own():
    aligned = result("a", 30.0, 60)
    aligned["training"]["alignment"] = {"positions": 2.5, "certified": 0.875, "alpha": 2}
    _, _, found, without = rows(experiment_tables([aligned, result("b", 30.0, 60)]))
    assert (found["positions per word"], found["certified, share"]) == ("2.50", "0.875")
    assert without["positions per word"] == without["alignment α"] == ""
    assert "certified" not in experiment_tables([result("b", 30.0, 60)])


def without_test_sets(run: str) -> dict:
    found = result(run, 30.0, 60)
    del found["evaluation"]["exam"]
    found["evaluation"]["valid"]["bleu"] = 31.0
    return found


def test_a_corpus_without_test_sets_has_the_scores_of_validation():
    text = experiment_tables([without_test_sets("a")])
    scores, costs = rows(text)
    assert (scores["valid BLEU"], scores["valid chrF"], scores["valid loss"]) == ("31.00", "50.00", "4.000")
    assert costs["decoding, sentences/s"] == "20.0" and "bleu's" in text

    edited = without_test_sets("a")
    before = {"ter": 40.0, "bleu": 20.0, "chrf": 30.0}
    edited["evaluation"]["valid"].update(uncorrected=before, ter=35.0, ter_signature="ter's")
    text = experiment_tables([edited])
    assert rows(text)[0]["valid TER"] == "35.00" and "Uncorrected MT, valid: TER 40.00" in text


def test_a_test_set_that_not_every_run_has():
    for order in (1, -1):
        runs = [without_test_sets("a"), result("b", 32.0, 60)][::order]
        text = experiment_tables(runs)
        found = {row["run"]: row["exam BLEU"] for row in rows(text) if "exam BLEU" in row}
        assert found == {"a": "", "b": "32.00"} and "bleu's" in text


BEAM = {"beam": 1, "bleu": 20.0, "length_ratio": 1.0}
FOUND = {"beams": [BEAM], "calibration": {"expected_calibration_error": 0.03}}


def test_runs_that_were_searched_with_other_beams():
    one, other = ({**result(name, 30.0, 60), "search": {"exam": copy.deepcopy(FOUND)}} for name in "ab")
    one["search"]["exam"]["beams"].append({**BEAM, "beam": 9})
    (a, b) = (row for row in rows(experiment_tables([one, other])) if "BLEU, beam 9" in row)
    assert (a["BLEU, beam 9"], b["BLEU, beam 9"], b["BLEU, beam 1"]) == ("20.00", "", "20.00")


def test_names_do_not_control_the_terminal():
    found = result("a\x1b[2J", 30.0, 60, corpus="mine\x07")
    found["evaluation"]["exam\x9b"] = {**found["evaluation"].pop("exam"), "bleu_signature": "\x1b]0;x\x07"}
    text = experiment_tables([found])
    assert all(each.isprintable() or each == "\n" for each in text)
    assert "a\\x1b[2J" in text and "mine\\x07 de-ja, scores" in text and "exam\\x9b BLEU" in text


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda found: found.clear(), "run is missing"),
        (lambda found: found.update(run=None), "run"),
        (lambda found: found.update(averaged_epochs=True), "averaged_epochs"),
        (lambda found: found.update(averaged_epochs="x"), "averaged_epochs"),
        (lambda found: found.update(evaluation={}), "evaluation.valid"),
        (lambda found: found["evaluation"]["exam"].update(bleu=-1), "evaluation.exam.bleu"),
        (lambda found: found["evaluation"]["exam"].update(chrf=101.0), "evaluation.exam.chrf"),
        (lambda found: found["evaluation"]["exam"].update(ter=-0.5), "evaluation.exam.ter"),
        (lambda found: found["evaluation"]["exam"].update(bleu=float("nan")), "result.json"),
        (lambda found: found["evaluation"]["exam"].pop("beam"), "evaluation.exam.beam"),
        (lambda found: found["evaluation"]["exam"].update(uncorrected={}), "evaluation.exam.uncorrected.ter"),
        (
            lambda found: found["evaluation"]["exam"].update(uncorrected={"ter": 1, "bleu": 1, "chrf": 1}),
            "evaluation.exam: the key ter is missing",
        ),
        (
            lambda found: found["evaluation"]["exam"].update(tokenized_bleu_tokens="spm"),
            "evaluation.exam: the key tokenized_bleu_lowercased_signature is missing",
        ),
        (lambda found: found["training"].pop("processor_seconds"), "training.processor_seconds"),
        (
            lambda found: found["heads"]["encoder_self"].update(alpha_mean="x"),
            "heads.encoder_self.alpha_mean",
        ),
        (lambda found: found["validation"].update(loss=float("nan")), "validation.loss"),
        (lambda found: found["validation"].update(loss=10**400), "validation.loss"),
        (lambda found: found["validation"].pop("ppl"), "validation.ppl"),
        (lambda found: found.update(search={"exam": {**FOUND, "beams": []}}), "search.exam.beams"),
        (lambda found: found.update(search={"exam": {**FOUND, "beams": [{}]}}), "search.exam.beams"),
        (lambda found: found.update(search={"exam": {**FOUND, "exact": {}}}), "search.exam.exact.completed"),
        (lambda found: found.update(search={"exam": {"beams": [BEAM]}}), "search.exam.calibration"),
    ],
)
def test_errors_in_a_result_are_named(tmp_path, change, key):
    path, found = tmp_path / "result.json", result("a", 30.0, 60)
    path.write_text(json.dumps(found))
    assert read_result(path) == found
    path.write_text(json.dumps({**found, "search": {"exam": FOUND}}))
    experiment_tables([read_result(path)])
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(UserError) as caught:
        read_result(path)
    assert str(path) in str(caught.value) and key in str(caught.value)
    assert f"remove the folder {tmp_path}" in str(caught.value)
