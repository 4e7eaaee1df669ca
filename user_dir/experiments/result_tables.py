"""The results of runs as Markdown: a row for each name, over its seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ..attention_types import ATTENTION_TYPES
from ..errors import printable
from ..schema import number, read_object, whole
from ..tables import Column, seed_mean, table

_SUPPORT, _ALIGNMENT = ("validation", "support"), ("training", "alignment")
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
    sentences: whole(1) | UnsetType = UNSET
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
    sentences: whole(1) | UnsetType = UNSET
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
        costs = [*_costs(tests), *(_alignments() if any(_at(each, *_ALIGNMENT) for each in every) else [])]
        for title, columns in (("scores", scores), ("cost and heads", costs)):
            tables.append(f"{corpus} {direction}, {title}\n\n{table(['run', 'seeds'], rows, columns)}")
        for name in tests:
            searched = [
                (head, seeds) for head, seeds in rows if all(_at(each, "search", name) for each in seeds)
            ]
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
    sparse = any(_at(each, *_SUPPORT) for each in results)  # older records lack it
    return [
        _mean("valid loss", ".3f", "validation", "loss"),
        _mean("valid ppl", ".2f", "validation", "ppl"),
        *([_mean("valid support", ".0f", *_SUPPORT)] if sparse else []),
        *([_mean("valid BLEU", ".2f", "evaluation", "valid", "bleu")] if tests else []),
        *(
            _mean(f"{name} {header}", ".2f", "evaluation", name, key)
            for name in tests or ["valid"]
            for header, key in scores
            # Not every language has tokens.
            if any(_at(result, "evaluation", name, key) is not None for result in results)
        ),
    ]


def _costs(tests: list[str]) -> list[Column]:
    first = (tests or ["valid"])[0]
    return [
        _mean("parameters", ",.0f", "parameters"),
        _mean("training, processor min", ".1f", "training", "processor_seconds", times=1 / 60),
        _mean("tokens/s", ".0f", "training", "tokens_per_second"),
        _mean("tokens/processor s", ".0f", "training", "tokens_per_processor_second"),
        _mean("decoding, sentences/s", ".1f", "evaluation", first, "sentences_per_second"),
        *(
            _mean(f"{kind.replace('_', ' ')} {header}", ".3f", "heads", kind, key)
            for kind in ATTENTION_TYPES
            for header, key in (("α", "alpha_mean"), ("density", "density_mean"))
        ),
    ]


def _alignments() -> list[Column]:
    """A latent alignment in the last epoch of training."""
    return [
        _mean("positions per word", ".2f", *_ALIGNMENT, "positions"),
        _mean("certified, share", ".3f", *_ALIGNMENT, "certified"),
        _mean("alignment α", ".3f", *_ALIGNMENT, "alpha"),
    ]


def _searches(test: str, example: dict) -> list[Column]:
    """BLEU by beam, calibration, and what exact search found."""

    def beam(width: int, key: str) -> Callable[[dict], float | None]:
        # A run of another experiment may have been searched with other beams.
        return lambda result: {each["beam"]: each[key] for each in result["search"][test]["beams"]}.get(width)

    beams = [each["beam"] for each in example["search"][test]["beams"]]
    error, exact = ("search", test, "calibration", "expected_calibration_error"), ("search", test, "exact")
    return [
        *(seed_mean(f"BLEU, beam {width}", beam(width, "bleu"), ".2f") for width in beams),
        seed_mean(f"length ratio, beam {beams[-1]}", beam(beams[-1], "length_ratio"), ".3f"),
        _mean("calibration error %", ".2f", *error, times=100),
        _mean("searched exactly %", ".1f", *exact, "completed", times=100),
        _mean("empty is best %", ".1f", *exact, "empty_is_most_probable", times=100),
        _mean("at most %", ".1f", *exact, "empty_may_be_most_probable", times=100),
        _mean("empty is possible %", ".1f", *exact, "empty_is_possible", times=100),
    ]


def _mean(header: str, form: str, *keys: str, times: float = 1) -> Column:
    """A column of the figure that these keys lead to."""

    def value(result: dict) -> float | None:
        found = _at(result, *keys)
        return found if found is None or times == 1 else times * found

    return seed_mean(header, value, form)


def _at(result: dict, *keys: str) -> Any:
    """What these keys lead to; None if one is missing."""
    for key in keys:
        result = result.get(key)
        if result is None:
            return None
    return result


def _legend(runs: dict[str, list[dict]], tests: list[str]) -> list[str]:
    scored = tests or ["valid"]
    first = next(each for seeds in runs.values() for each in seeds if scored[0] in each["evaluation"])
    test = first["evaluation"][scored[0]]
    epochs = first["averaged_epochs"]
    averaged = {"ema": "Moving average", 1: "Last epoch"}.get(epochs, f"Average of the last {epochs} epochs")
    lines = [
        f"{averaged}, beam {test['beam']}; ± standard deviation over seeds. Validation loss and perplexity "
        "are of the same weights.",
        f"BLEU: `{test['bleu_signature']}`; chrF: `{test['chrf_signature']}`",
    ]
    if "uncorrected" in test:
        lines.append(f"TER: `{test['ter_signature']}`; less is better")
        for name in scored:
            before = _at(first, "evaluation", name, "uncorrected")
            if before:
                lines.append(
                    f"Uncorrected MT, {name}: TER {before['ter']:.2f}, BLEU {before['bleu']:.2f}, "
                    f"chrF {before['chrf']:.2f}"
                )
    elif "tokenized_bleu_tokens" in test:
        signature = test["tokenized_bleu_lowercased_signature"]
        lines.append(f"BLEU tok lc: lower-cased, on tokens of {test['tokenized_bleu_tokens']}: `{signature}`")
    return lines
