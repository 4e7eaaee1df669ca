"""The results of runs as Markdown: a row for each name, over its seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ..attention_types import ATTENTION_TYPES
from ..errors import printable
from ..schema import number, read_object, whole
from ..tables import Column, seed_mean, table

_Number = number(-1e300, 1e300)
_Share = number(0, 100, 0.01)  # BLEU and chrF
_Edits = number(0, 1e300)  # TER, which may exceed 100


class _Metrics(Struct):
    ter: _Edits
    bleu: _Share
    chrf: _Share


class _Scores(Struct, kw_only=True):
    beam: whole(1)
    bleu: _Share
    chrf: _Share
    bleu_signature: str
    chrf_signature: str
    ter: _Edits | UnsetType = UNSET
    ter_signature: str | UnsetType = UNSET
    uncorrected: _Metrics | UnsetType = UNSET  # post-editing
    tokenized_bleu_lowercased: _Share | UnsetType = UNSET
    tokenized_bleu_lowercased_signature: str | UnsetType = UNSET
    tokenized_bleu_tokens: str | UnsetType = UNSET
    sentences_per_second: _Number | None = None

    def __post_init__(self) -> None:
        needed = {"ter": self.uncorrected, "ter_signature": self.uncorrected}
        needed["tokenized_bleu_lowercased_signature"] = self.tokenized_bleu_tokens
        for key, other in needed.items():
            if other is not UNSET and getattr(self, key) is UNSET:
                raise ValueError(f"the key {key} is missing")


class _Training(Struct):
    processor_seconds: _Number | None
    tokens_per_second: _Number | None
    tokens_per_processor_second: _Number | None
    alignment: dict[str, _Number | None] | UnsetType = UNSET


class _Validation(Struct):
    loss: _Number
    ppl: _Number | None
    support: _Number | None = None


class _Beam(Struct):
    beam: whole(1)
    bleu: _Share
    length_ratio: _Number


class _Calibration(Struct):
    expected_calibration_error: _Number


class _Exact(Struct):
    completed: _Number
    empty_is_most_probable: _Number
    empty_may_be_most_probable: _Number
    empty_is_possible: _Number


class _Search(Struct):
    beams: Annotated[list[_Beam], Meta(min_length=1)]
    calibration: _Calibration
    exact: _Exact | UnsetType = UNSET


class _Heads(Struct):
    alpha_mean: _Number | None = None
    density_mean: _Number | None = None


class _Result(Struct):
    """What the tables need of result.json; what has a default is missing in older records."""

    run: str
    corpus: str
    direction: str
    averaged_epochs: whole(1) | Literal["ema"]
    parameters: _Number
    training: _Training
    validation: _Validation
    evaluation: dict[str, _Scores]
    heads: dict[str, _Heads]
    search: dict[str, _Search] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if "valid" not in self.evaluation:
            raise ValueError("the key evaluation.valid is missing")


def read_result(path: Path) -> dict:
    """Read the ``result.json`` of a run; raises UserError if it is corrupt or lacks what the tables need."""
    remedy = f"restore the file, or remove the folder {path.parent} to make the run again"
    return read_object(path, "a result of scripts/experiment.py", _Result, remedy)


def experiment_tables(results: list[dict]) -> str:
    """For each corpus and direction: scores of its runs; cost, α and density; what search found.

    Args:
        results: from :func:`read_result`. Without test sets, the scores are those of validation.
    """
    groups: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for result in results:
        group = groups.setdefault((result["corpus"], result["direction"]), {})
        group.setdefault(result["run"], []).append(result)
    tables = []
    for (corpus, direction), runs in groups.items():
        every = [result for seeds in runs.values() for result in seeds]
        # Of all runs: a corpus may have got a test set after its first run.
        tests = list(dict.fromkeys(name for each in every for name in each["evaluation"] if name != "valid"))
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
    # The names are of files that others may have written.
    return "\n".join(map(printable, "\n\n".join(tables).split("\n")))


def _scores(tests: list[str], results: list[dict]) -> list[Column]:
    scores = (("BLEU", "bleu"), ("chrF", "chrf"), ("BLEU tok lc", "tokenized_bleu_lowercased"))
    if "uncorrected" in results[0]["evaluation"]["valid"]:  # post-editing
        scores = (("TER", "ter"), ("BLEU", "bleu"), ("chrF", "chrf"))
    return [
        seed_mean("valid loss", lambda result: result["validation"]["loss"], ".3f"),
        seed_mean("valid ppl", lambda result: result["validation"]["ppl"], ".2f"),
        *([seed_mean("valid support", _support, ".0f")] if any(map(_support, results)) else []),
        *([seed_mean("valid BLEU", _evaluated("valid", "bleu"), ".2f")] if tests else []),
        *(
            seed_mean(f"{name} {header}", _evaluated(name, key), ".2f")
            for name in tests or ["valid"]
            for header, key in scores
            if any(key in _scores_of(result, name) for result in results)  # not every language has tokens
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
        seed_mean(
            "decoding, sentences/s", _evaluated((tests or ["valid"])[0], "sentences_per_second"), ".1f"
        ),
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

    def beam(width: int, key: str) -> Callable[[dict], float | None]:
        # A run of another experiment may have been searched with other beams.
        return lambda result: {each["beam"]: each[key] for each in _found(result, test)["beams"]}.get(width)

    beams = [each["beam"] for each in _found(example, test)["beams"]]
    columns = [seed_mean(f"BLEU, beam {width}", beam(width, "bleu"), ".2f") for width in beams]
    columns.append(seed_mean(f"length ratio, beam {beams[-1]}", beam(beams[-1], "length_ratio"), ".3f"))
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
    return lambda result: _scores_of(result, name).get(key)


def _scores_of(result: dict, name: str) -> dict:
    return result["evaluation"].get(name, {})


def _head(kind: str, key: str) -> Callable[[dict], float | None]:
    return lambda result: result["heads"].get(kind, {}).get(key)


def _minutes(result: dict) -> float | None:
    seconds = result["training"]["processor_seconds"]
    return seconds and seconds / 60


def _legend(runs: dict[str, list[dict]], tests: list[str]) -> list[str]:
    scored = tests or ["valid"]
    first = next(each for seeds in runs.values() for each in seeds if scored[0] in each["evaluation"])
    test = first["evaluation"][scored[0]]
    epochs = first["averaged_epochs"]
    averaged = "Moving average" if epochs == "ema" else f"Average of the last {epochs} epochs"
    lines = [
        f"{averaged}, beam {test['beam']}; ± standard deviation over seeds. Validation loss and perplexity "
        "are those of the average.",
        f"BLEU: `{test['bleu_signature']}`; chrF: `{test['chrf_signature']}`",
    ]
    if "uncorrected" in test:
        lines.append(f"TER: `{test['ter_signature']}`; less is better")
        for name in scored:
            before = _scores_of(first, name).get("uncorrected")
            if before:
                lines.append(
                    f"Uncorrected MT, {name}: TER {before['ter']:.2f}, BLEU {before['bleu']:.2f}, "
                    f"chrF {before['chrf']:.2f}"
                )
    elif "tokenized_bleu_tokens" in test:
        signature = test["tokenized_bleu_lowercased_signature"]
        lines.append(f"BLEU tok lc: lower-cased, on tokens of {test['tokenized_bleu_tokens']}: `{signature}`")
    return lines
