"""Roles of heads, with configurable thresholds."""

from __future__ import annotations

import pytest

from user_dir.analysis.roles import ROLES, assign_roles, role_table, with_thresholds
from user_dir.errors import UserError


def row(attention: str, head: int, **values) -> dict:
    measures = dict.fromkeys((role.measure for role in ROLES.values()), 0.0)
    return {"attention": attention, "layer": 0, "head": head, **measures, **values}


def test_heads_are_ranked_and_named():
    heads = [
        row("encoder_self", 0, confidence_previous=0.9, eos=0.5),
        row("encoder_self", 1, confidence_previous=0.95),
        row("encoder_self", 2, interrogation=None),
        row("decoder_context", 0, confidence_previous=0.99),
    ]
    roles = assign_roles(heads, ROLES)
    assert [each["roles"] for each in heads] == [
        ["previous position", "</s> sink"],
        ["previous position"],
        [],
        [],  # source positions are not before or after a target word
    ]
    ranked = [(head["head"], head["value"]) for head in roles["previous position"]["heads"]]
    assert ranked == [(1, 0.95), (0, 0.9), (2, 0.0)]
    assert len(roles["interrogation"]["heads"]) == 3, "not defined for one"
    text = role_table(roles)
    assert "previous position (confidence_previous >= 0.8): 2 heads" in text
    assert "next position (confidence_next >= 0.8): no heads" in text
    assert "below" in text


def test_thresholds_can_be_set():
    roles = with_thresholds(["previous position=0.97", "</s> sink=1"])
    assert roles["previous position"].threshold == 0.97
    assert ROLES["previous position"].threshold == 0.8
    heads = [row("encoder_self", 0, confidence_previous=0.9, eos=1.0)]
    assign_roles(heads, roles)
    assert heads[0]["roles"] == ["</s> sink"]


@pytest.mark.parametrize("change", ["previous=0.9", "previous position", "=1", ""])
def test_unknown_roles_are_refused(change):
    with pytest.raises(UserError, match="the roles are 'previous position'"):
        with_thresholds([change])


@pytest.mark.parametrize("value", ["high", "1.5", "-0.1", "nan", ""])
def test_thresholds_outside_0_and_1_are_refused(value):
    with pytest.raises(UserError, match="from 0 to 1"):
        with_thresholds([f"previous position={value}"])
