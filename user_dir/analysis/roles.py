"""Names for what heads do: a role is a measure, and the least value of it that earns the name."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError
from .heads import head_name

_SELF = ("encoder_self", "decoder_self")


@dataclass(frozen=True)
class Role:
    """What a head must do to be named.

    Attributes:
        measure: the column of the statistics that heads are ranked by.
        threshold: its least value for the name.
        attentions: the attention types whose heads can have the role; empty for all.
    """

    measure: str
    threshold: float
    attentions: tuple[str, ...] = ()


# The paper speaks of positional heads from 90 % confidence on, of subword merging from 80 %, and of
# interrogation at 97 % and more, in big models; the others are ours. In context attention a place in the
# source is no place before or after the query.
ROLES = {
    "previous position": Role("confidence_previous", 0.8, _SELF),
    "next position": Role("confidence_next", 0.8, _SELF),
    "current position": Role("confidence_current", 0.8, _SELF),
    "subword merging": Role("subword_merging", 0.8, _SELF),
    "interrogation": Role("interrogation", 0.8),
    "</s> sink": Role("eos", 0.5),
}


def with_thresholds(changes: list[str]) -> dict[str, Role]:
    """:data:`ROLES` with other thresholds, each given as ``ROLE=VALUE``.

    Raises:
        UserError: no such role, or a value that is no share.
    """
    roles = dict(ROLES)
    for change in changes:
        name, _, value = change.rpartition("=")
        if name not in roles:
            raise UserError(
                f"--threshold {change}: the roles are {', '.join(map(repr, ROLES))}; give ROLE=VALUE"
            )
        try:
            threshold = float(value)
        except ValueError:
            threshold = -1.0
        if not 0 <= threshold <= 1:
            raise UserError(f"--threshold {change}: the value must be a share of the weight, from 0 to 1")
        roles[name] = Role(roles[name].measure, threshold, roles[name].attentions)
    return roles


def assign_roles(heads: list[dict], roles: dict[str, Role]) -> dict[str, dict]:
    """Give each row its ``roles``, the names it earns, and rank the heads for each role.

    Args:
        heads: rows of the statistics; each gets a list ``roles``.
        roles: for instance :data:`ROLES`.

    Returns:
        By role its measure, its threshold, and all heads that it is defined for, the greatest value first:
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
