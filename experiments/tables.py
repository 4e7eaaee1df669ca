#!/usr/bin/env python3
"""Print the tables of an experiment from its records, or write those of a Markdown page anew.

    python experiments/tables.py experiments/comparison.yaml --only 'en-de-*'
    python experiments/tables.py experiments/comparison.md

A page's tables are what the command prints that stands above them in a fence of the language sh, between the comments
``<!-- output: TITLE; TITLE -->`` and ``<!-- end -->``: the sections with these titles, or everything. Commands find the
records of experiments in the folder runs. Legends (lists) are left out. Use it only on pages that you trust.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.run import RECORDS, RUNS, read_plan, unpack  # noqa: E402
from user_dir.command_line import file_path, run_command  # noqa: E402
from user_dir.errors import UserError  # noqa: E402
from user_dir.files import markdown, mean_and_deviation, read_json, read_text, write_text  # noqa: E402

KINDS = ("encoder_self", "decoder_self", "decoder_context")
Column = tuple[str, str, Callable[[dict], float | None]]
"""Header, format of the number, and the number in the result of a run."""


def at(result: dict, *keys: str) -> float | None:
    """What these keys lead to; None if one is missing."""
    for key in keys:
        result = result.get(key)
        if result is None:
            return None
    return result


def column(header: str, form: str, *keys: str, times: float = 1) -> Column:
    """A column of the figure that these keys lead to."""

    def number(result: dict) -> float | None:
        value = at(result, *keys)
        return value if value is None or times == 1 else times * value

    return header, form, number


def experiment_tables(results: list[dict]) -> str:
    """For each corpus and direction: scores of its runs over their seeds; cost, α and density; a legend.

    ``results`` are those of run.py. Without test sets, the scores are those of validation.
    """
    groups: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for result in results:
        group = groups.setdefault((result["corpus"], result["direction"]), {})
        group.setdefault(result["run"], []).append(result)
    tables = []
    for (corpus, direction), runs in groups.items():
        every = [result for seeds in runs.values() for result in seeds]
        tests = list(dict.fromkeys(name for each in every for name in each["evaluation"] if name != "valid"))
        for title, columns in (("scores", scores(tests, every)), ("cost and heads", costs(tests, every))):
            rows = [
                [
                    name,
                    str(len(seeds)),
                    *(mean_and_deviation(map(number, seeds), form) for _, form, number in columns),
                ]
                for name, seeds in runs.items()
            ]
            headers = ["run", "seeds", *(header for header, _, _ in columns)]
            tables.append(f"{corpus} {direction}, {title}\n\n{markdown(rows, headers)}")
        tables.append("\n".join(f"- {line}" for line in legend(every, tests or ["valid"])))
    return "\n\n".join(tables)


def scores(tests: list[str], results: list[dict]) -> list[Column]:
    """Loss, perplexity and support on validation, and the scores of each test set."""
    metrics = {"BLEU": "bleu", "chrF": "chrf", "BLEU tok lc": "tokenized_bleu_lowercased"}
    if "uncorrected" in results[0]["evaluation"]["valid"]:  # post-editing
        metrics = {"TER": "ter", "BLEU": "bleu", "chrF": "chrf"}
    columns = [
        column("valid loss", ".3f", "validation", "loss"),
        column("valid ppl", ".2f", "validation", "ppl"),
        *[column("valid support", ".0f", "validation", "support")],
        *([column("valid BLEU", ".2f", "evaluation", "valid", "bleu")] if tests else []),
        *(
            column(f"{name} {header}", ".2f", "evaluation", name, key)
            for name in tests or ["valid"]
            for header, key in metrics.items()
        ),
    ]
    optional = ("support", "tok lc")  # of sparse outputs, and of languages with tokens
    return [each for each in columns if not each[0].endswith(optional) or has(each, results)]


def costs(tests: list[str], results: list[dict]) -> list[Column]:
    """Parameters, times, α and density of each attention type, and a latent alignment in the last epoch."""
    first = (tests or ["valid"])[0]
    alignment = ("training", "alignment")
    return [
        column("parameters", ",.0f", "parameters"),
        column("training, processor min", ".1f", "training", "processor_seconds", times=1 / 60),
        column("tokens/s", ".0f", "training", "tokens_per_second"),
        column("tokens/processor s", ".0f", "training", "tokens_per_processor_second"),
        column("decoding, sentences/s", ".1f", "evaluation", first, "sentences_per_second"),
        *(
            column(f"{kind.replace('_', ' ')} {header}", ".3f", "heads", kind, key)
            for kind in KINDS
            for header, key in (("α", "alpha_mean"), ("density", "density_mean"))
        ),
        *(
            each
            for each in (
                column("positions per word", ".2f", *alignment, "positions"),
                column("certified, share", ".3f", *alignment, "certified"),
                column("alignment α", ".3f", *alignment, "alpha"),
            )
            if any(at(result, *alignment) for result in results)
        ),
    ]


def has(column: Column, results: list[dict]) -> bool:
    """Whether any run has the figure of a column."""
    return any(column[2](result) is not None for result in results)


def legend(results: list[dict], scored: list[str]) -> list[str]:
    """Which weights were scored, and how."""
    first = next(result for result in results if scored[0] in result["evaluation"])
    test, epochs = first["evaluation"][scored[0]], first["averaged_epochs"]
    averaged = {"ema": "Moving average", 1: "Last epoch"}.get(epochs, f"Average of the last {epochs} epochs")
    lines = [
        f"{averaged}, beam {test['beam']}; ± standard deviation over seeds. Validation loss and perplexity "
        "are of the same weights.",
        f"BLEU: `{test['bleu_signature']}`; chrF: `{test['chrf_signature']}`",
    ]
    if "uncorrected" in test:
        lines.append(f"TER: `{test['ter_signature']}`; less is better")
        for name in scored:
            before = at(first, "evaluation", name, "uncorrected")
            if before:
                shown = ", ".join(
                    f"{metric} {before[metric.lower()]:.2f}" for metric in ("TER", "BLEU", "chrF")
                )
                lines.append(f"Uncorrected MT, {name}: {shown}")
    elif "tokenized_bleu_tokens" in test:
        signature = test["tokenized_bleu_lowercased_signature"]
        lines.append(f"BLEU tok lc: lower-cased, on tokens of {test['tokenized_bleu_tokens']}: `{signature}`")
    return lines


def of_plan(plan: Path, patterns: list[str], folder: Path = RUNS, records: Path = RECORDS) -> str:
    """The tables of the runs that are done of an experiment."""
    _, runs = read_plan(plan, folder, patterns)
    for experiment in {run.experiment for run in runs}:
        unpack(experiment, folder, records)
    results = [run.folder / "result.json" for run in runs]
    return experiment_tables([read_json(path) for path in results if path.is_file()])


def updated(page: str, run: Callable[[str], str]) -> str:
    """A page with every output as its command prints it now; ``run`` runs a command and returns what it prints."""
    command, printed = "", {}

    def replaced(part: re.Match) -> str:
        nonlocal command
        if part["command"]:
            command = part["command"]
            return part.group()
        if command not in printed:
            printed[command] = run(command)
        return f"{part['begin']}\n\n{shown(printed[command], part['titles'])}\n\n<!-- end"

    parts = r"^```sh\n(?P<command>.*?)^```$|^(?P<begin><!-- output(?:: (?P<titles>.*?))? -->)\n.*?^<!-- end"
    return re.sub(parts, replaced, page, flags=re.MULTILINE | re.DOTALL)


def shown(printed: str, titles: str | None) -> str:
    """What a page shows of what a command printed: the sections with these titles, or all, without lists.

    A section begins with a line of its own that is followed by a table.
    """
    paragraphs = [each.strip("\n") for each in re.split(r"\n\s*\n", printed) if each.strip()]
    if titles:
        sections: dict[str, list[str]] = {}
        title = ""
        for paragraph, following in zip(paragraphs, [*paragraphs[1:], ""]):
            if "\n" not in paragraph and following.startswith("|"):
                title = paragraph.strip("* ")
                sections[title] = []
            else:
                sections.setdefault(title, []).append(paragraph)
        wanted = [title.strip() for title in titles.split(";")]
        if missing := [title for title in wanted if title not in sections]:
            raise UserError(f"the page shows {missing[0]!r}, which its command does not print")
        paragraphs = [paragraph for title in wanted for paragraph in sections[title]]
    return "\n\n".join(narrow(each) for each in paragraphs if not each.startswith("- "))


def narrow(text: str) -> str:
    """Tables without the spaces that align their columns, which would change with any cell."""
    lines = [
        re.sub(r"-{3,}", "---", re.sub(r" {2,}", " ", line)).replace("|---", "| ---").replace("---|", "--- |")
        if line.startswith("|")
        else line
        for line in text.split("\n")
    ]
    return "\n".join(lines)


def run_in_shell(command: str) -> str:
    """What a command of a page prints, with this Python, in the repository's root."""
    for archive in RECORDS.glob("*.tar.xz"):
        if (experiment := archive.name.removesuffix(".tar.xz")) in command:
            unpack(experiment)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8"}
    words = ["bash", "-euo", "pipefail", "-c", command]
    return subprocess.run(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout


def main() -> None:
    """Print the tables of a plan, or write a page anew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=file_path, metavar="FILE", help="experiment (.yaml) or page (.md)")
    what = "only runs whose NAME-seedN matches, such as '*-seed1'; may be repeated"
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help=what)
    args = parser.parse_args()
    if args.file.suffix == ".md":
        write_text(args.file, updated(read_text(args.file, "the page"), run_in_shell))
    else:
        print(of_plan(args.file, args.only))


if __name__ == "__main__":
    run_command(main)
