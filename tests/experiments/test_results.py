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
    assert scores_b["exam BLEU tok lc"] == ""
    assert costs_a["training, processor min"] == f"1.5 ± {statistics.stdev([1, 2]):.1f}"
    assert costs_b["training, processor min"] == costs_b["tokens/processor s"] == ""
    assert costs_a["parameters"] == "1,234,567" and costs_b["encoder self α"] == "1.250"
    assert costs_b["decoder context density"] == ""
    assert other["exam BLEU"] == "10.00"
    assert "last 3 epochs, beam 5" in text and "bleu's" in text
