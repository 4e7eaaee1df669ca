"""Roles of heads: a measure and the minimum value of it that a head needs to have the role."""

from __future__ import annotations

from typing import NamedTuple

from ..attention_types import ATTENTION_TYPES
from ..errors import UserError
from .head_tables import head_name

_SELF = ("encoder_self", "decoder_self")


class Role(NamedTuple):
    """The definition of a role."""

    measure: str  # the column of the statistics by which heads are ranked
    threshold: float  # minimum value for the role
    attentions: tuple[str, ...] = ATTENTION_TYPES  # whose heads can have the role

    def able(self, heads: list[dict]) -> list[dict]:
        """The rows of heads that can have the role and have a value of the measure."""
        return [
            row for row in heads if row["attention"] in self.attentions and row.get(self.measure) is not None
        ]


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
        roles[name] = roles[name]._replace(threshold=threshold)
    return roles


def assign_roles(heads: list[dict], roles: dict[str, Role]) -> dict[str, dict]:
    """Give each row of the statistics a list ``roles``, and rank the heads for each role.

    Returns for each role its measure, threshold, and all heads for which it is defined, by descending value:
    ``{"measure": …, "threshold": …, "heads": [{"attention", "layer", "head", "value"}, …]}``.
    """
    for row in heads:
        row["roles"] = []
    ranking = {}
    for name, role in roles.items():
        ranked = []
        for row in sorted(role.able(heads), key=lambda row: -row[role.measure]):
            if row[role.measure] >= role.threshold:
                row["roles"].append(name)
            place = {key: row[key] for key in ("attention", "layer", "head")}
            ranked.append({**place, "value": row[role.measure]})
        ranking[name] = {"measure": role.measure, "threshold": role.threshold, "heads": ranked}
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
