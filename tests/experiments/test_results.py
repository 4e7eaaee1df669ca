"""Tables of results over seeds."""

import statistics

from user_dir.experiments.results import experiment_tables


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
