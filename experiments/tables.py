#!/usr/bin/env python3
"""Print the tables of an experiment from its records, or write those of a Markdown page anew.

    python experiments/tables.py experiments/comparison.yaml --only 'en-de-*'
    python experiments/tables.py experiments/comparison.md

The tables of a page stand between ``<!-- output: TITLE; TITLE -->`` and ``<!-- end -->``. They come from the
output of the sh code block above them: its sections with these titles or, without titles, all but lists.
Commands find the records of experiments in the folder runs. Use it only on pages that you trust.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.run import RECORDS, RUNS, read_plan, unpack  # noqa: E402
from user_dir.attention import ATTENTION_TYPES  # noqa: E402
from user_dir.commands.options import Parser, run_command  # noqa: E402
from user_dir.errors import UserError  # noqa: E402
from user_dir.files import markdown, mean_and_deviation, read_json, read_text, write_text  # noqa: E402

Column = tuple[str, str, Callable[[dict], float | None]]
"""Header, format of the number, and the number in the result of a run."""


def column(header: str, form: str, *keys: str, times: float = 1) -> Column:
    """A column with the number that nested ``keys`` of a result lead to; None if a key is missing."""

    def number(result: dict) -> float | None:
        for key in keys:
            result = result.get(key)
            if result is None:
                return None
        return result if times == 1 else times * result

    return header, form, number


def experiment_tables(results: list[dict]) -> str:
    """For each corpus and direction: scores of its runs over their seeds; cost, α and density.

    ``results`` are those of run.py. Without test sets, the scores are those of validation. Columns
    without any number are left out.
    """
    groups: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for result in results:
        group = groups.setdefault((result["corpus"], result["direction"]), {})
        group.setdefault(result["run"], []).append(result)
    tables = []
    for (corpus, direction), runs in groups.items():
        every = [result for seeds in runs.values() for result in seeds]
        tests = list(dict.fromkeys(name for run in every for name in run["evaluation"] if name != "valid"))
        for title, columns in (("scores", scores(tests, every)), ("cost and heads", costs(tests))):
            table = [["run", *runs], ["seeds", *(str(len(seeds)) for seeds in runs.values())]]
            for header, form, number in columns:
                means = (mean_and_deviation(map(number, seeds), form) for seeds in runs.values())
                table.append([header, *means])
            # Only sparse outputs have support, only newer records keys per query.
            headers, *rows = zip(*(cells for cells in table if any(cells[1:])))
            tables.append(f"{corpus} {direction}, {title}\n\n{markdown(rows, headers)}")
    return "\n\n".join(tables)


def scores(tests: list[str], results: list[dict]) -> list[Column]:
    """Loss, perplexity, support and keys per query on validation, and the scores of each test set."""
    metrics = {"BLEU": "bleu", "chrF": "chrf", "BLEU tok lc": "tokenized_bleu_lowercased"}
    if "uncorrected" in results[0]["evaluation"]["valid"]:  # post-editing
        metrics = {"TER": "ter", "BLEU": "bleu", "chrF": "chrf"}
    columns = [
        column("valid loss", ".3f", "validation", "loss"),
        column("valid ppl", ".2f", "validation", "ppl"),
        column("valid support", ".0f", "validation", "support"),
        column("keys per query", ".2f", "keys_per_query"),
    ]
    if tests:
        columns.append(column("valid BLEU", ".2f", "evaluation", "valid", "bleu"))
    for name in tests or ["valid"]:
        for header, key in metrics.items():
            columns.append(column(f"{name} {header}", ".2f", "evaluation", name, key))
    return columns


def costs(tests: list[str]) -> list[Column]:
    """Parameters, times, α and density of each attention type, and a latent alignment in the last epoch."""
    test, training = (tests or ["valid"])[0], "training"
    columns = [
        column("parameters", ",.0f", "parameters"),
        column("training, processor min", ".1f", training, "processor_seconds", times=1 / 60),
        column("tokens/s", ".0f", training, "tokens_per_second"),
        column("tokens/processor s", ".0f", training, "tokens_per_processor_second"),
        column("decoding, sentences/s", ".1f", "evaluation", test, "sentences_per_second"),
    ]
    for kind in ATTENTION_TYPES:
        for header, key in (("α", "alpha_mean"), ("density", "density_mean")):
            columns.append(column(f"{kind.replace('_', ' ')} {header}", ".3f", "heads", kind, key))
    columns += [
        column("positions per word", ".2f", training, "alignment", "positions"),
        column("certified, share", ".3f", training, "alignment", "certified"),
        column("alignment α", ".3f", training, "alignment", "alpha"),
    ]
    return columns


def of_plan(plan: Path, patterns: list[str], folder: Path = RUNS, records: Path = RECORDS) -> str:
    """The tables of an experiment's finished runs."""
    _, runs = read_plan(plan, folder, patterns)
    for experiment in {run.experiment for run in runs}:
        unpack(experiment, folder, records)
    folders = [run.folder for run in runs if (run.folder / "result.json").is_file()]
    return experiment_tables([{**read_json(at / "result.json"), **keys_per_query(at)} for at in folders])


def keys_per_query(folder: Path) -> dict[str, float]:
    """The mean over the heads of a run, if its statistics have them."""
    statistics_file = folder / "average.heads.json"
    heads = read_json(statistics_file)["heads"] if statistics_file.is_file() else []
    keys = [head["keys_per_query"] for head in heads if "keys_per_query" in head]
    return {"keys_per_query": sum(keys) / len(keys)} if keys else {}


def updated(page: str, run: Callable[[str], str]) -> str:
    """Update every output in a page to what its command prints now; ``run`` returns what a command prints."""
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
    paragraphs = [part.strip("\n") for part in re.split(r"\n\s*\n", printed) if part.strip()]
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
    return "\n\n".join(narrow(part) for part in paragraphs if not part.startswith("- "))


def narrow(text: str) -> str:
    """Tables without the spaces that align their columns, which would change with any cell."""
    if not text.startswith("|"):
        return text
    text = re.sub(r"-{3,}", "---", re.sub(r" {2,}", " ", text))
    return text.replace("|---", "| ---").replace("---|", "--- |")


def run_in_shell(command: str) -> str:
    """What a command of a page prints, with this Python, in the repository's root."""
    for archive in RECORDS.glob("*.tar.xz"):
        if (experiment := archive.name.removesuffix(".tar.xz")) in command:
            unpack(experiment)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8"}
    words = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(words, cwd=ROOT, env=environment, encoding="utf-8", stdout=subprocess.PIPE)
    if done.returncode:
        raise UserError(f"a command of the page failed: {command}")
    return done.stdout


def main() -> None:
    """Print the tables of a plan, or write a page anew."""
    parser = Parser(__doc__)
    parser.add("file", Path, "experiment (.yaml) or page (.md)", metavar="FILE")
    what = "only runs whose NAME-seedN matches, such as '*-seed1'; may be repeated"
    parser.add("--only", str, what, action="append", default=[], metavar="PATTERN")
    args = parser.parse_args()
    if args.file.suffix == ".md":
        write_text(args.file, updated(read_text(args.file, "the page"), run_in_shell))
    else:
        print(of_plan(args.file, args.only))


if __name__ == "__main__":
    run_command(main)
