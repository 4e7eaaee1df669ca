"""Roles of heads: a measure and the minimum value of it that a head needs to have the role."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError
from .head_tables import head_name

_SELF = ("encoder_self", "decoder_self")


@dataclass(frozen=True)
class Role:
    """The definition of a role.

    Attributes:
        measure: the column of the statistics by which heads are ranked.
        threshold: minimum value for the role.
        attentions: the attention types whose heads can have the role; empty for all.
    """

    measure: str
    threshold: float
    attentions: tuple[str, ...] = ()


# The paper speaks of positional heads from 90 % confidence, subword merging from 80 %, and interrogation from
# 97 %, in large models; the other thresholds are ours. Positional roles need self-attention, since source
# positions are not before or after a target query.
ROLES = {
    "previous position": Role("confidence_previous", 0.8, _SELF),
    "next position": Role("confidence_next", 0.8, _SELF),
    "current position": Role("confidence_current", 0.8, _SELF),
    "subword merging": Role("subword_merging", 0.8, _SELF),
    "interrogation": Role("interrogation", 0.8),
    "</s> sink": Role("eos", 0.5),
}


def with_thresholds(changes: list[str]) -> dict[str, Role]:
    """:data:`ROLES` with thresholds changed by arguments of the form ``ROLE=VALUE``.

    Raises:
        UserError: unknown role, or a value outside [0, 1].
    """
    roles = dict(ROLES)
    for change in changes:
        name, _, value = change.rpartition("=")
        if name not in roles:
            raise UserError(
                f"--threshold {change}: expected ROLE=VALUE; the roles are {', '.join(map(repr, ROLES))}"
            )
        try:
            threshold = float(value)
        except ValueError:
            threshold = -1.0
        if not 0 <= threshold <= 1:
            raise UserError(f"--threshold {change}: the value must be from 0 to 1")
        roles[name] = Role(roles[name].measure, threshold, roles[name].attentions)
    return roles


def assign_roles(heads: list[dict], roles: dict[str, Role]) -> dict[str, dict]:
    """Set each row's ``roles`` and rank the heads for each role.

    Args:
        heads: rows of the statistics; each gets a list ``roles``.
        roles: for instance :data:`ROLES`.

    Returns:
        For each role its measure, threshold, and all heads for which it is defined, by descending value:
        ``{"measure": …, "threshold": …, "heads": [{"attention", "layer", "head", "value"}, …]}``.
    """
    for row in heads:
        row["roles"] = []
    ranking = {}
    for name, role in roles.items():
        able = [
            row
            for row in heads
            if row[role.measure] is not None and (not role.attentions or row["attention"] in role.attentions)
        ]
        able.sort(key=lambda row: -row[role.measure])
        for row in able:
            if row[role.measure] >= role.threshold:
                row["roles"].append(name)
        ranking[name] = {
            "measure": role.measure,
            "threshold": role.threshold,
            "heads": [
                {
                    **{key: row[key] for key in ("attention", "layer", "head")},
                    "value": row[role.measure],
                }
                for row in able
            ],
        }
    return ranking


def role_table(roles: dict[str, dict], shown: int = 3) -> str:
    """As text, the heads that have each role, or the best ``shown`` if none does, with their values."""
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
