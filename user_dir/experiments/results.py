"""The results of runs as Markdown: a row for each name, over its seeds."""

from __future__ import annotations

from collections.abc import Callable

from ..attention_types import ATTENTION_TYPES
from ..tables import Column, seed_mean, table


def experiment_tables(results: list[dict]) -> str:
    """For each corpus and direction: scores of its runs; cost, α and density; what search found."""
    groups: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for result in results:
        group = groups.setdefault((result["corpus"], result["direction"]), {})
        group.setdefault(result["run"], []).append(result)
    tables = []
    for (corpus, direction), runs in groups.items():
        every = [result for seeds in runs.values() for result in seeds]
        tests = [name for name in every[0]["evaluation"] if name != "valid"]
        rows = [([name, str(len(seeds))], seeds) for name, seeds in runs.items()]
        scores = _scores(tests, every)
        costs = [*_costs(tests), *(_alignments() if any(map(_aligned, every)) else [])]
        for title, columns in (("scores", scores), ("cost and heads", costs)):
            tables.append(f"{corpus} {direction}, {title}\n\n{table(['run', 'seeds'], rows, columns)}")
        for name in tests:
            searched = [(head, seeds) for head, seeds in rows if all(_found(each, name) for each in seeds)]
            if searched:
                columns = _searches(name, searched[0][1][0])
                title = f"{corpus} {direction}, search on {name}"
                tables.append(f"{title}\n\n{table(['run', 'seeds'], searched, columns)}")
        tables.append("\n".join(f"- {line}" for line in _legend(runs, tests)))
    return "\n\n".join(tables)


def _scores(tests: list[str], results: list[dict]) -> list[Column]:
    scores = (("BLEU", "bleu"), ("chrF", "chrf"), ("BLEU tok lc", "tokenized_bleu_lowercased"))
    if "uncorrected" in results[0]["evaluation"]["valid"]:  # post-editing
        scores = (("TER", "ter"), ("BLEU", "bleu"), ("chrF", "chrf"))
    return [
        seed_mean("valid loss", lambda result: result["validation"]["loss"], ".3f"),
        seed_mean("valid ppl", lambda result: result["validation"]["ppl"], ".2f"),
        *([seed_mean("valid support", _support, ".0f")] if any(map(_support, results)) else []),
        seed_mean("valid BLEU", _evaluated("valid", "bleu"), ".2f"),
        *(
            seed_mean(f"{name} {header}", _evaluated(name, key), ".2f")
            for name in tests
            for header, key in scores
            if any(key in result["evaluation"][name] for result in results)  # not every language has tokens
        ),
    ]


def _costs(tests: list[str]) -> list[Column]:
    return [
        seed_mean("parameters", "parameters", ",.0f"),
        seed_mean("training, processor min", _minutes, ".1f"),
        seed_mean("tokens/s", lambda result: result["training"]["tokens_per_second"], ".0f"),
        seed_mean(
            "tokens/processor s", lambda result: result["training"]["tokens_per_processor_second"], ".0f"
        ),
        seed_mean("decoding, sentences/s", _evaluated(tests[0], "sentences_per_second"), ".1f"),
        *(
            seed_mean(f"{kind.replace('_', ' ')} {header}", _head(kind, key), ".3f")
            for kind in ATTENTION_TYPES
            for header, key in (("α", "alpha_mean"), ("density", "density_mean"))
        ),
    ]


def _alignments() -> list[Column]:
    """A latent alignment in the last epoch of training."""
    return [
        seed_mean("positions per word", lambda result: _aligned(result).get("positions"), ".2f"),
        seed_mean("certified, share", lambda result: _aligned(result).get("certified"), ".3f"),
        seed_mean("alignment α", lambda result: _aligned(result).get("alpha"), ".3f"),
    ]


def _support(result: dict) -> float | None:
    """Symbols with a probability, if the output is sparse; runs from before it was recorded lack it."""
    return result["validation"].get("support")


def _aligned(result: dict) -> dict:
    return result["training"].get("alignment", {})


def _searches(test: str, example: dict) -> list[Column]:
    """BLEU by beam, calibration, and what exact search found."""

    def beam(place: int, key: str) -> Callable[[dict], float]:
        return lambda result: _found(result, test)["beams"][place][key]

    beams = [each["beam"] for each in _found(example, test)["beams"]]
    columns = [
        seed_mean(f"BLEU, beam {width}", beam(place, "bleu"), ".2f") for place, width in enumerate(beams)
    ]
    columns.append(seed_mean(f"length ratio, beam {beams[-1]}", beam(-1, "length_ratio"), ".3f"))
    columns.append(
        seed_mean(
            "calibration error %",
            lambda result: 100 * _found(result, test)["calibration"]["expected_calibration_error"],
            ".2f",
        )
    )
    for header, key in (
        ("searched exactly %", "completed"),
        ("empty is best %", "empty_is_most_probable"),
        ("at most %", "empty_may_be_most_probable"),
        ("empty is possible %", "empty_is_possible"),
    ):
        columns.append(seed_mean(header, _exact(test, key), ".1f"))
    return columns


def _found(result: dict, test: str) -> dict | None:
    return result.get("search", {}).get(test)


def _exact(test: str, key: str) -> Callable[[dict], float | None]:
    def share(result: dict) -> float | None:
        found = _found(result, test).get("exact")
        return found and 100 * found[key]

    return share


def _evaluated(name: str, key: str) -> Callable[[dict], float | None]:
    return lambda result: result["evaluation"][name].get(key)


def _head(kind: str, key: str) -> Callable[[dict], float | None]:
    return lambda result: result["heads"].get(kind, {}).get(key)


def _minutes(result: dict) -> float | None:
    seconds = result["training"]["processor_seconds"]
    return seconds and seconds / 60


def _legend(runs: dict[str, list[dict]], tests: list[str]) -> list[str]:
    first = next(iter(runs.values()))[0]
    test = first["evaluation"][tests[0]]
    epochs = first["averaged_epochs"]
    averaged = "Moving average" if epochs == "ema" else f"Average of the last {epochs} epochs"
    lines = [
        f"{averaged}, beam {test['beam']}; ± standard deviation over seeds. Validation loss and perplexity "
        "are those of the average.",
        f"BLEU: `{test['bleu_signature']}`; chrF: `{test['chrf_signature']}`",
    ]
    if "uncorrected" in test:
        lines.append(f"TER: `{test['ter_signature']}`; less is better")
        for name in tests:
            before = first["evaluation"][name]["uncorrected"]
            lines.append(
                f"Uncorrected MT, {name}: TER {before['ter']:.2f}, BLEU {before['bleu']:.2f}, "
                f"chrF {before['chrf']:.2f}"
            )
    elif "tokenized_bleu_tokens" in test:
        signature = test["tokenized_bleu_lowercased_signature"]
        lines.append(f"BLEU tok lc: lower-cased, on tokens of {test['tokenized_bleu_tokens']}: `{signature}`")
    return lines
