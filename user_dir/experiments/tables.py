"""The figures of runs as Markdown: a row for each name, over its seeds."""

from __future__ import annotations

from collections.abc import Callable

from ..attention import ATTENTION_TYPES
from ..tables import markdown, spread


def experiment_tables(results: list[dict]) -> str:
    """For each corpus and direction: the scores of its runs; what they cost, and what the heads learned."""
    groups: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for result in results:
        group = groups.setdefault((result["corpus"], result["direction"]), {})
        group.setdefault(result["run"], []).append(result)
    tables = []
    for (corpus, direction), runs in groups.items():
        tests = [name for name in next(iter(runs.values()))[0]["evaluation"] if name != "valid"]
        for title, columns in (("scores", _scores(tests)), ("cost and heads", _costs(tests))):
            lines = [
                [name, str(len(seeds)), *(spread(map(figure, seeds), form) for _, figure, form in columns)]
                for name, seeds in runs.items()
            ]
            headers = ["run", "seeds", *(header for header, _, _ in columns)]
            tables.append(f"{corpus} {direction}, {title}\n\n{markdown(lines, headers)}")
        tables.append("\n".join(f"- {line}" for line in _legend(runs, tests)))
    return "\n\n".join(tables)


Column = tuple[str, Callable[[dict], "float | None"], str]


def _scores(tests: list[str]) -> list[Column]:
    columns: list[Column] = [
        ("valid loss", lambda result: result["validation"]["loss"], ".3f"),
        ("valid ppl", lambda result: result["validation"]["ppl"], ".2f"),
    ]
    for name in ("valid", *tests):
        for header, key in (
            ("BLEU", "bleu"),
            ("chrF", "chrf"),
            ("BLEU tok lc", "tokenized_bleu_lowercased"),
        ):
            if name != "valid" or key == "bleu":
                columns.append((f"{name} {header}", _evaluated(name, key), ".2f"))
    return columns


def _costs(tests: list[str]) -> list[Column]:
    columns: list[Column] = [
        ("parameters", lambda result: result["parameters"], ",.0f"),
        ("training, min of processor", _minutes, ".1f"),
        ("tokens/s", lambda result: result["training"]["tokens_per_second"], ".0f"),
        ("tokens/processor s", lambda result: result["training"]["tokens_per_processor_second"], ".0f"),
        ("decoding, sentences/s", _evaluated(tests[0], "sentences_per_second"), ".1f"),
    ]
    for kind in ATTENTION_TYPES:
        for what in ("alpha", "density"):
            header = f"{kind.replace('_', ' ')} {'α' if what == 'alpha' else what}"
            columns.append((header, _head(kind, f"{what}_mean"), ".3f"))
    return columns


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
    lines = [
        f"Mean of the last {first['averaged_epochs']} epochs, beam {test['beam']}; ± standard deviation over "
        "seeds. Loss and perplexity of validation are of the same model.",
        f"BLEU: `{test['bleu_signature']}`; chrF: `{test['chrf_signature']}`",
    ]
    if "tokenized_bleu_tokens" in test:
        signature = test["tokenized_bleu_lowercased_signature"]
        lines.append(f"BLEU tok lc: lower-cased, on tokens of {test['tokenized_bleu_tokens']}: `{signature}`")
    return lines
