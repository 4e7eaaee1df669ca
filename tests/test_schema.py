"""Faults of plain data have a place, a value and what it must be; types are as strict as ours were."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from user_dir.errors import UserError
from user_dir.faults import find_fault
from user_dir.schema import number, pattern, read_object, whole
from user_dir.yaml_files import read_yaml_as


class Head(Struct, forbid_unknown_fields=True):
    alpha: number(1, 2)


class File(Struct, forbid_unknown_fields=True):
    heads: list[Head] = []
    by_name: dict[str, list[Head]] = {}
    count: whole(1, 9) | Literal["all"] = 1
    share: number(0, tolerance=0.5) = 0
    name: pattern("[a-z]+", "a lower-case name") | None = None
    pair: tuple[str, str] = ("a", "b")
    some: Annotated[list[bool], Meta(min_length=1)] | None = None

    def __post_init__(self):
        if self.name == "refused":
            raise ValueError("the name is refused")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, None),
        ({"count": 9, "share": 3, "name": "abc", "heads": [{"alpha": 1}]}, None),
        ({"count": "all", "share": -0.5, "pair": ["x", "y"], "by_name": {"": []}}, None),
        ([], "it is [], but must be a mapping"),
        ({"count": 0}, "count is 0, but must be a whole number from 1 to 9 or all"),
        ({"count": True}, "count is True, but must be a whole number from 1 to 9 or all"),
        ({"count": 1.0}, "count is 1.0, but must be a whole number from 1 to 9 or all"),
        ({"count": "1"}, "count is '1', but must be a whole number from 1 to 9 or all"),
        ({"count": 10**400}, "count is 0x"),
        ({"share": float("nan")}, "share is nan, but must be a number from -0.5"),
        ({"share": float("inf")}, "share is inf, but must be a number from -0.5"),
        ({"share": False}, "share is False, but must be a number from -0.5"),
        ({"share": 10**400}, "share is 0x"),
        ({"share": None}, "share is None, but must be a number from -0.5"),
        ({"name": "abc\n"}, "name is 'abc\\n', but must be a lower-case name or null"),
        ({"name": "refused"}, "the name is refused"),
        ({"pair": ["x"]}, "pair is ['x'], but must be a list of 2"),
        ({"some": []}, "some is [], but must be a list that is not empty or null"),
        ({"some": [0]}, "some[0] is 0, but must be true or false"),
        ({"heads": [{"alpha": 1}, {"alpha": 3}]}, "heads[1].alpha is 3, but must be a number from 1 to 2"),
        ({"heads": [{"alpha": 1}, {}]}, "the key heads[1].alpha is missing"),
        ({"heads": [{"alpha": 1, "beta": 2}]}, "unknown key 'beta' in heads[0]; choose from alpha"),
        (
            {"by_name": {"a": [], "b": [{"alpha": 0}]}},
            "by_name.b[0].alpha is 0, but must be a number from 1 to 2",
        ),
        ({"by_name": {"a": [], "x - at `$.y`": 0}}, "by_name.x - at `$.y` is 0, but must be a list"),
        ({"by_name": {"k" * 900: 0}}, f"by_name.{'k' * 80}… is 0, but must be a list"),
        ({"by_name": {"a": [], 7: []}}, "by_name has the key 7, which must be text"),
        ({"x - at `$.y`": 0}, "unknown key 'x - at `$.y`'; choose from heads, by_name, count, share"),
        ({"x\n - at `$.heads[3]`": 0}, "unknown key 'x\\n - at `$.heads[3]`'; choose from heads"),
        ({7: 0}, "it has the key 7, which must be text"),
        ({"\ud800": 0}, "one of its keys has half a character"),
    ],
)
def test_a_fault_has_a_place_a_value_and_what_it_must_be(value, message):
    found = find_fault(value, File)
    assert (found is None) == (message is None)
    if found is not None:
        assert found.message.startswith(message) and len(found.message) < 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("count: 1\nheads:\n- alpha: 1\n- alpha: 5\n", r"a\.yaml, line 4: heads\[1\]\.alpha is 5, but"),
        ("count: 1\nheads:\n- alpha: 1\n- {}\n", r"a\.yaml, line 4: the key heads\[1\]\.alpha is missing"),
        ("count: 1\nhead: 2\n", r"a\.yaml, line 2: unknown key 'head'; choose from heads, by_name"),
        ("by_name:\n  a: []\n  7: []", r"a\.yaml, line 3: by_name has the key 7, which must be text"),
        ("by_name: &x\n  a: []\n  b: 7\nheads: *x", r"a\.yaml, line 3: by_name.b is 7, but must be a list"),
        ("- 1", r"a\.yaml: it is \[1\], but must be a mapping"),
        ("", r"a\.yaml: it is None, but must be a mapping"),
    ],
)
def test_a_fault_in_yaml_has_a_line(tmp_path, text, said):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_yaml_as(path, File)


def test_what_a_merge_brings_has_the_line_of_what_it_is_merged_into(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("by_name:\n  a:\n  - &a {alpha: 9}\n")
    with pytest.raises(UserError, match=r"line 3: .* is 9"):
        read_yaml_as(path, File)
    path.write_text("by_name:\n  a: [&a {alpha: 1}]\nheads:\n  - <<: *a\n    beta: 3")
    with pytest.raises(UserError, match="line 5: unknown key 'beta'"):
        read_yaml_as(path, File)
    path.write_text("some: &a [false, 3]\n<<: {count: 7, share: x}\n")
    with pytest.raises(UserError, match=r"a\.yaml(, line 1)?: (share is 'x'|some\[1\] is 3)"):
        read_yaml_as(path, File)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"count": 2, "count": 3}', '{"count": 0}', "[" * 100_000, "NaN"]
)
def test_a_file_that_does_not_fit_is_named_with_the_remedy(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text('{"count": 3}')
    assert read_object(path, "a list", File, "write it again") == {"count": 3}
    path.write_text(text)
    with pytest.raises(UserError, match=r"a\.json is not a list.*; write it again$"):
        read_object(path, "a list", File, "write it again")
