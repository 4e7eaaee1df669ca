"""Print the tables of the experiments with latent choices from their records.

python -m experiments.latent.latent_results
"""

from __future__ import annotations

import statistics
from contextlib import suppress
from pathlib import Path

from user_dir.commands.options import run_command
from user_dir.errors import UserError
from user_dir.files import markdown, mean_and_deviation, read_yaml

from ._runs import FOLDER, missing, system_runs, unpack

# file → title, figure of the test set, its header, its scale and format
EXPERIMENTS = {
    "game": ("Signalling game", "success", "success %", 100, ".1f"),
    "bit_vectors": ("Bit vectors", "negative_elbo", "−ELBO, bits per pixel", 1, ".3f"),
}


def results(name: str, folder: Path = FOLDER) -> str:
    """The table of an experiment: a row per system all of whose runs have records."""
    title, figure, header, scale, form = EXPERIMENTS[name]
    plan, rows = read_yaml(Path(__file__).with_name(f"{name}.yaml")), []
    for system in plan["systems"]:
        with suppress(UserError):
            runs = system_runs(plan, system, folder / name, missing)
            calls = statistics.mean(run["calls"] for run in runs)
            training = statistics.mean(
                statistics.mean(each["calls"] for each in run["curve"]) for run in runs
            )
            score = mean_and_deviation((scale * run["test"][figure] for run in runs), form)
            rows.append([system, score, f"{calls:.2f}", f"{training:.2f}", f"{runs[0]['learning_rate']:g}"])
    headers = ["system", header, "calls", "calls, mean of training", "learning rate"]
    return f"**{title}**\n\n{markdown(rows, headers)}"


def main() -> None:
    """Print the tables."""
    unpack("latent")
    print("\n\n".join(map(results, EXPERIMENTS)))


if __name__ == "__main__":
    run_command(main)
