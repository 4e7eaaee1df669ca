"""Tables of the heads, as text for a terminal."""

from __future__ import annotations


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
