"""A comparison as Markdown."""

from __future__ import annotations

from ..tables import markdown, significance


def comparison_tables(report: dict) -> str:
    """The systems; where there are several seeds, the same seed by seed; then what was tested, and how."""
    metrics, seeds = list(report["signatures"]), report["seeds"]
    headers = [cell for metric in metrics for cell in (metric, "Δ", "p")]
    lines = []
    for row in report["systems"]:
        lines.append([row["name"]])
        for metric in metrics:
            lines[-1] += [_mean(row[metric]), *_difference(row[metric])]
    tables = [markdown(lines, ["system", *headers])]
    if seeds > 1:
        lines = []
        for i in range(seeds):
            for row in report["systems"]:
                lines.append([row["name"], i + 1])
                for metric in metrics:
                    seed = row[metric]["seeds"][i]
                    lines[-1] += [f"{seed['score']:.2f}", *_difference(seed)]
        tables.append(markdown(lines, ["system", "seed", *headers]))
    return "\n\n".join([*tables, _legend(report)])


def _mean(scores: dict) -> str:
    spread = "" if scores["std"] is None else f" ± {scores['std']:.2f}"
    return f"{scores['mean']:.2f}{spread}"


def _difference(scores: dict) -> list[str]:
    return [f"{scores['delta']:+.2f}", significance(scores["p"])] if "p" in scores else ["", ""]


def _legend(report: dict) -> str:
    baseline = report["systems"][0]["name"]
    lines = [
        f"{report['sentences']} sentences. Δ and p: against {baseline}; p of sacrebleu's {report['test']}, "
        "not corrected for several comparisons."
    ]
    if report["seeds"] > 1:
        lines.append(
            f"Mean ± standard deviation of {report['seeds']} seeds; p of all seeds together, a sentence "
            "drawn with all its translations; below, each seed against the same seed."
        )
    lines += [f"{metric}: `{signature}`" for metric, signature in report["signatures"].items()]
    return "\n".join(f"- {line}" for line in lines)
