"""YAML files are read within limits, as PyYAML reads them; keys twice and odd numbers are refused."""

from pathlib import Path

import pytest
import yaml

from user_dir.errors import UserError
from user_dir.yaml_files import read_yaml


def bomb(kind: str, width: int, levels: int) -> str:
    """YAML of a few lines that stands for WIDTH to the power of LEVELS values."""
    first = ", ".join(f"k{key}: 1" if kind == "merges" else "x" for key in range(width))
    lines = [f"a0: &a0 {{{first}}}" if kind == "merges" else f"a0: &a0 [{first}]"]
    for level in range(1, levels):
        inner = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{inner}]}}" if kind == "merges" else f"[{inner}]"))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb("aliases", 9, 9),
        bomb("merges", 9, 9),
        bomb("merges", 9, 6),
        bomb("aliases", 400, 2) + "\nb: *a1",
        "a: &a [*a, *a, *a]",
        "a: &a {b: *a}",
        "a: &a {<<: *a}",
        "? &a [*a]\n: b",
        "a: " + "[" * 30 + "]" * 30,
    ],
)
def test_yaml_that_stands_for_more_than_it_says_is_refused_before_it_is_built(tmp_path, monkeypatch, text):
    (tmp_path / "a.yaml").write_text(text)
    monkeypatch.setattr(yaml, "safe_load", lambda _: pytest.fail("it was built"))
    with pytest.raises(UserError, match=r"a\.yaml is too large for .*; check its YAML aliases and merges"):
        read_yaml(tmp_path / "a.yaml")


ROOT = Path(__file__).resolve().parents[1]
OURS = [path for where in ("configs/**", "experiments", "data/*") for path in ROOT.glob(f"{where}/*.yaml")]
FINE = "a: &a {x: 1, y: &y [1, 2]}\nb: {<<: *a, y: *y}\nc: {<<: [*a, {z: 3}], x: 0}\nd: *a\n"


def test_yaml_with_aliases_and_merges_is_read_as_pyyaml_reads_it(tmp_path):
    (tmp_path / "a.yaml").write_text(FINE)
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    (tmp_path / "large.yaml").write_text("\n".join(f"a{number}: {number}" for number in range(1000)))
    made = [tmp_path / name for name in ("a.yaml", "empty.yaml", "large.yaml")]
    assert len(OURS) > 30, "the search finds nothing"
    for path in (*OURS, *made):
        assert read_yaml(path)[0] == yaml.safe_load(path.read_text(encoding="utf-8")), path
    values, node = read_yaml(tmp_path / "a.yaml")
    assert values["c"] == {"x": 0, "y": [1, 2], "z": 3}
    assert [key.start_mark.line for key, _ in node.value] == [0, 1, 2, 3]
    assert [key.value for key, _ in node.value[1][1].value] == ["<<", "y"], "the file's own keys"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {b: 1, c: 2}\nd: {b: 1,\n  b: 1}", "line 3: 'b' is a duplicate of line 2"),
        ("a: 9223372036854775808", "line 1: a number has 64 bits"),
        ("a: [0b1" + "0" * 70 + "]", "line 1: a number has 71 bits"),
        ("a: 012", "line 1: YAML reads '012' as a number to the base 8"),
        ("a:\n- 1:30", "line 2: YAML reads '1:30' as a number"),
    ],
)
def test_what_was_hardly_meant_is_refused(tmp_path, text, said):
    (tmp_path / "a.yaml").write_text("a: {b: 1, c: {b: 1}}\n1: -9223372036854775807\n'1': 0x7f")
    read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"a\.yaml, {said}"):
        read_yaml(tmp_path / "a.yaml")
