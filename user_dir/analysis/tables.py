"""Tables of the heads, as text for a terminal."""

from __future__ import annotations

from ..tables import significance


def head_table(heads: list[dict]) -> str:
    """α and density of every head as text: a block per attention type, a line per layer."""
    lines = []
    for attention_type in dict.fromkeys(row["attention"] for row in heads):
        rows = [row for row in heads if row["attention"] == attention_type]
        width = max(row["head"] for row in rows) + 1
        alpha, dense = (sum(row[name] for row in rows) / len(rows) for name in ("alpha", "density"))
        lines.append(f"{attention_type}: mean alpha {alpha:.3f}, mean density {dense:.3f}")
        columns = "".join(f"  head {head:<2}" for head in range(width))
        lines.append(f"  {'alpha':<8}{columns}    {'density':<8}{columns}")
        for layer in dict.fromkeys(row["layer"] for row in rows):
            cells = {
                name: "".join(f"  {row[name]:7.3f}" for row in rows if row["layer"] == layer)
                for name in ("alpha", "density")
            }
            lines.append(f"  layer {layer:<2}{cells['alpha']}    layer {layer:<2}{cells['density']}")
        lines.append("")
    return "\n".join(lines)


def role_table(roles: dict[str, dict], shown: int = 3) -> str:
    """For each role the heads that earn it, or the best ``shown`` where none does, with their values."""
    lines = []
    for name, role in roles.items():
        earned = [head for head in role["heads"] if head["value"] >= role["threshold"]]
        count = f"{len(earned) or 'no'} head{'' if len(earned) == 1 else 's'}"
        lines.append(f"{name} ({role['measure']} >= {role['threshold']:g}): {count}")
        if not role["heads"]:
            lines[-1] += "; not defined here"
        for head in earned or role["heads"][:shown]:
            mark = "" if earned else "  below"
            lines.append(f"  {head_name(head)}  {head['value']:.3f}{mark}")
    return "\n".join(lines)


def head_name(head: dict) -> str:
    """A head in words, for instance ``encoder_self layer 0 head 2``; both count from 0."""
    return f"{head['attention']} layer {head['layer']} head {head['head']}"


def importance_summary(report: dict, shown: int = 5) -> str:
    """The heads that matter most and least, and the correlations, as text."""
    ranked = sorted(report["heads"], key=lambda row: -row["importance"])
    lines = [f"loss {report['loss']:.4f} nats per token; without one head it rises by"]
    rest = len(ranked) - 2 * shown
    for i, row in enumerate(ranked):
        if i < shown or i >= len(ranked) - shown:
            bleu = f"  BLEU {row['bleu']:.2f}" if "bleu" in row else ""
            lines.append(
                f"  {row['importance']:+.4f}  {head_name(row)}"
                f"  (alpha {row['alpha']:.3f}, density {row['density']:.3f}){bleu}"
            )
        elif i == shown:
            lines.append(f"  … {rest} more")
    lines.append("rank correlation (Spearman) of importance with")
    for row in report["correlations"]:
        value = "not defined"
        if row["spearman"] is not None:
            value = f"{row['spearman']:+.3f}  p {significance(row['p_value'])}"
        lines.append(f"  {row['measure']:<8} {row['attention']:<16} {row['heads']:3} heads  {value}")
    return "\n".join(lines)
