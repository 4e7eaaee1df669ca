"""The result files of analyses: where they lie, reading them, and tables of what they say."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..files import markdown, mean_and_deviation, read_json
from .maps import SentenceMaps, read_maps
from .trajectories import Trajectories, read_trajectories


def result_file(checkpoint: Path, subset: str, ending: str) -> Path:
    """The default path of an analysis of a checkpoint over a split, such as ``best.valid.heads.json``.

    ``subset`` is the public name of the split: results of different splits have different files.
    """
    return checkpoint.with_name(f"{checkpoint.stem}.{subset}.{ending}")


def beside(statistics_file: Path, ending: str) -> Path:
    """The path of another result of the same model and split, with an ``ending`` such as ``attention``."""
    stem = statistics_file.name.partition(".heads")[0].removesuffix(".json")
    return statistics_file.with_name(f"{stem}.{ending}")


def log_beside(path: Path) -> Path | None:
    """The α log, ``alpha.jsonl``, in the folder of a checkpoint or its results; None if there is none."""
    log = path.with_name("alpha.jsonl")
    return log if log.is_file() else None


def read_statistics(path: str | Path) -> dict:
    """Read ``NAME.heads.json``, which may be compressed; raises UserError if it is something else."""
    content = read_json(path, "the head statistics")
    if not isinstance(content, dict) or not {"heads", "layers", "roles"} <= content.keys():
        raise UserError(f"{path} is not a file of head statistics, which heads.py writes")
    return content


@dataclass(frozen=True)
class ModelAnalysis:
    """A model's name and statistics and, if known, its α over training and attention maps."""

    name: str
    statistics: dict
    trajectories: Trajectories | None = None
    maps: Sequence[SentenceMaps] | None = None


def read_model(
    name: str, statistics_file: str | Path, log: str | Path | None = None, maps: str | Path | None = None
) -> ModelAnalysis:
    """Read statistics and, if they are given, an α log and attention maps of one model."""
    trajectories = read_trajectories(log) if log else None
    return ModelAnalysis(
        name, read_statistics(statistics_file), trajectories, read_maps(Path(maps)) if maps else None
    )


def check_same_split(splits: dict[str, tuple]) -> None:
    """Raise UserError unless all results are of one split; ``splits`` has (corpus, subset, …) by result."""
    if len(set(splits.values())) > 1:
        named = (f"{name} ({', '.join(map(str, split))})" for name, split in splits.items())
        raise UserError(f"different splits cannot be combined: {' and '.join(named)}; see --subset")


def check_models(models: Sequence[ModelAnalysis]) -> None:
    """Raise UserError unless the statistics and maps of all models are of one split."""
    splits = {model.name: split_of(model.statistics) for model in models}
    for model in models:
        for sentence in (model.maps or [])[:1]:
            splits[f"maps of {model.name}"] = sentence.corpus, sentence.subset, splits[model.name][2]
    check_same_split(splits)


def split_of(report: dict) -> tuple[str | None, str | None, str]:
    """Corpus, subset and number of sentences of statistics."""
    return report.get("corpus"), report.get("subset"), f"{report['sentences']} sentences"


def model_names(paths: Sequence[Path], names: Sequence[str] | None = None) -> list[str]:
    """A name per model: of ``names``, or else folder and file name; UserError if two are equal."""
    names = names or [f"{path.absolute().parent.name}/{path.name.split('.')[0]}" for path in paths]
    if len(names) != len(paths):
        raise UserError(f"{len(names)} names were given with --name, but there are {len(paths)} models")
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise UserError(f"two models would both be called {doubled[0]!r}")
    return names


def rounded(value):
    """Round the numbers in nested lists and dicts to 8 decimals."""
    if isinstance(value, float):
        return round(value, 8)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def by_attention(rows: Iterable[dict]) -> dict[str, list[dict]]:
    """Group rows of heads or layers by attention type, keeping their order."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["attention"], []).append(row)
    return groups


def head_of(row: dict) -> tuple[str, int, int]:
    """Attention type, layer and head of a row."""
    return row["attention"], row["layer"], row["head"]


def head_name(row: dict) -> str:
    """The name of a head, such as ``encoder_self layer 0 head 2``; both count from 0."""
    return f"{row['attention']} layer {row['layer']} head {row['head']}"


def summary(report: dict) -> dict[str, dict]:
    """α, density and diversity by attention type, from the content of a file of statistics.

    ``diversity`` and ``union_density`` are means over layers, everything else over heads. ``diversity`` is
    None for layers of a single head.
    """
    layers, means = by_attention(report["layers"]), {}
    for kind, heads in by_attention(report["heads"]).items():
        alphas = [row["alpha"] for row in heads]
        diversities = [row["diversity"] for row in layers[kind]]
        means[kind] = {
            "heads": len(heads),
            "alpha_mean": statistics.fmean(alphas),
            "alpha_min": min(alphas),
            "alpha_max": max(alphas),
            "density_mean": statistics.fmean(row["density"] for row in heads),
            "union_density": statistics.fmean(row["union_density"] for row in layers[kind]),
            "diversity": None if None in diversities else statistics.fmean(diversities),
        }
    return means


def comparison_table(systems: dict[str, list[dict]]) -> str:
    """A Markdown table of ``systems``, which has the :func:`summary` of each seed by the system's name."""
    rows = []
    for name, seeds in systems.items():
        for kind in seeds[0]:
            of_kind = [seed[kind] for seed in seeds]
            cells = [
                mean_and_deviation((seed[measure] for seed in of_kind), ".3f")
                for measure in ("alpha_mean", "density_mean", "union_density", "diversity")
            ]
            least = min(seed["alpha_min"] for seed in of_kind)
            greatest = max(seed["alpha_max"] for seed in of_kind)
            cells.insert(1, f"{least:.2f}–{greatest:.2f}")
            rows.append([name, kind, len(seeds), of_kind[0]["heads"], *cells])
    headers = ["system", "attention", "seeds", "heads", "mean α", "α from–to"]
    return markdown(rows, [*headers, "density", "density of union", "diversity"])


def head_table(rows: Iterable[dict]) -> str:
    """α and density of every head as text: a line per layer and a column per head, per attention type."""
    lines = []
    for attention_type, heads in by_attention(rows).items():
        alpha, density = (statistics.fmean(row[name] for row in heads) for name in ("alpha", "density"))
        lines.append(f"{attention_type}: mean alpha {alpha:.3f}, mean density {density:.3f}")
        cells = []
        for layer in dict.fromkeys(row["layer"] for row in heads):
            for name in ("alpha", "density"):
                cells.append([f"layer {layer}", name, *(row[name] for row in heads if row["layer"] == layer)])
        lines += [text_table(cells), ""]
    return "\n".join(lines)


def alpha_table(trajectories: Trajectories) -> str:
    """The final α of every head as text: a line per layer and a column per head, for each attention type."""
    lines = [f"alpha at update {trajectories.updates[-1]}", ""]
    for attention_type, alphas in trajectories.alphas.items():
        lines.append(f"{attention_type}: mean alpha {np.mean(alphas[-1]):.3f}")
        lines += [text_table([f"layer {layer}", *heads] for layer, heads in enumerate(alphas[-1])), ""]
    return "\n".join(lines)


def text_table(rows: Iterable[Iterable], headers: Sequence[str] = ()) -> str:
    """A table as text, of numbers with three decimals; a dash for None."""
    from tabulate import tabulate

    return tabulate(rows, headers, floatfmt=".3f", tablefmt="plain", missingval="-")


def heads_as_csv(heads: Sequence[dict]) -> str:
    """The rows of the heads as CSV, without lists; roles are joined by semicolons."""
    columns = [name for name, value in heads[0].items() if not isinstance(value, list)]
    rows = ([*(row[name] for name in columns), "; ".join(row["roles"])] for row in heads)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[*columns, "roles"], *rows])
    return text.getvalue()
