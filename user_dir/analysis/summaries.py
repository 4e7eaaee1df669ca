"""Results in a few lines, as text for a terminal."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ..tables import significance
from .head_tables import head_name, head_table
from .roles import role_table
from .words import known_interrogatives


def importance_summary(report: dict, shown: int = 5) -> str:
    """The most and least important heads, and rank correlations, as text."""
    ranked = sorted(report["heads"], key=lambda row: -row["importance"])
    heads = []
    for row in ranked:
        facts = f"alpha {row['alpha']:.3f}, density {row['density']:.3f}"
        bleu = f"  BLEU {row['bleu']:.2f}" if "bleu" in row else ""
        heads.append(f"  {row['importance']:+.4f}  {head_name(row)}  ({facts}){bleu}")
    if len(heads) > 2 * shown:
        heads[shown:-shown] = [f"  … {len(heads) - 2 * shown} more"]
    lines = [f"loss {report['loss']:.4f} nats per token; masking one head adds", *heads]
    lines.append("rank correlation (Spearman) of importance; p not adjusted for the number of tests")
    for row in report["correlations"]:
        value = "not defined"
        if row["spearman"] is not None:
            value = f"{row['spearman']:+.3f}  p {significance(row['p_value'])}"
        lines.append(f"  {row['measure']:<8} {row['attention']:<16} {row['heads']:3} heads  {value}")
    return "\n".join(lines)


def alignment_summary(rows: list[dict]) -> str:
    """Links of each candidate of a word alignment, with error rates if there are gold links, as text."""
    scored = "aer" in rows[0]
    lines = [
        f"{'':<14}{'links':>8}{'aligned':>9}{'bits':>7}" + ("     AER  precision  recall" if scored else "")
    ]
    for row in rows:
        line = f"{row['name']:<14}{row['links']:>8}{row['aligned']:>9.3f}{row['bits']:>7.2f}"
        if scored:
            shown = [
                "      -" if row[name] is None else f"{row[name]:7.3f}"
                for name in ("aer", "precision", "recall")
            ]
            line += f" {shown[0]}    {shown[1]} {shown[2]}"
        lines.append(line)
    return "\n".join(lines)


def statistics_summary(
    report: dict, output: Path, maps: Path | None, map_sentences: int, interrogatives: Collection[str] = ()
) -> str:
    """Tables of the heads and their roles, and the files that :func:`~.results.write_statistics` wrote.

    ``interrogatives``: languages for which the user gave interrogative words.
    """
    lines = [head_table(report["heads"]), role_table(report["roles"])]
    for language in (report["source_lang"], report["target_lang"]):
        if language not in interrogatives and known_interrogatives(language) is None:
            lines.append(
                f"no list of interrogative words for {language!r}: give --interrogatives {language}=FILE"
            )
    lines.append("")
    if maps:
        lines.append(f"attention maps of {min(map_sentences, report['sentences'])} sentences: {maps}")
    table = output.with_suffix(".csv").name
    lines.append(f"statistics over {report['sentences']} sentences: {output} and {table}")
    return "\n".join(lines)
