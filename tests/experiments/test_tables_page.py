"""Pages whose tables are what their commands print: docs/results.md and those beside experiments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import script_module

from user_dir.errors import UserError
from user_dir.experiments.tables_page import outputs, rendered, sections, updated
from user_dir.io import read_text
from user_dir.packed_folders import expanded

ROOT = Path(__file__).resolve().parents[2]
PRINTED = """
**First**

| a   | b     |
|-----|-------|
| 1   | 2 ± 1 |

A legend.

**Second**

| c   |
|-----|
| 3   |

- A list of what columns mean.
"""
PAGE = """# Page

```sh
python scripts/some.py --flag
```

Words.

<!-- output: Second -->
| c |
|---|
| old |
<!-- end -->

More words.

<!-- output: First -->
<!-- end -->
"""


def test_sections_of_what_is_printed():
    found = sections(PRINTED)
    assert list(found) == ["First", "Second"]
    assert found["First"].endswith("\n\nA legend.") and found["Second"].startswith("| c ")


def test_every_output_is_written_anew_by_one_run_of_its_command():
    commands = []

    def run(command):
        commands.append(command)
        return PRINTED

    new = updated(PAGE, run)
    assert commands == ["python scripts/some.py --flag\n"]
    assert (
        "old" not in new
        and "A list" not in new
        and "| 3 |" in new
        and "| 1 | 2 ± 1 |\n\nA legend.\n\n<!-- end -->" in new
    )
    assert new.index("| 3 |") < new.index("More words.") < new.index("| 1 |")
    assert updated(new, run) == new, "it stays as it is"
    whole = updated(PAGE.replace("output: Second", "output"), run)
    assert whole.index("**First**") < whole.index("**Second**") < whole.index("More words.")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (PAGE.replace("```sh", "```"), "line 9: <!-- output: Second --> has no command"),
        (PAGE.replace("<!-- end -->", "", 1), "line 9: <!-- output: Second --> lacks <!-- end -->"),
        (PAGE.replace("output: Second", "output: Third"), "no section 'Third'; there are First, Second"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused(page, said):
    with pytest.raises(UserError, match=said):
        updated(page, lambda _: PRINTED)


def test_the_command_line_writes_and_checks(tmp_path, capsys):
    main = script_module("update_tables").main
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nprintf '**T**\\n\\n| a |\\n|---|\\n| 1 |\\n'\n```\n<!-- output: T -->\n<!-- end -->\n"
    )
    with pytest.raises(UserError, match="differs from what its commands print"):
        main([str(page), "--check"])
    assert "+| 1 |" in capsys.readouterr().out and "| 1 |\n" not in page.read_text()
    main([str(page)])
    assert "| 1 |\n" in page.read_text()
    main([str(page), "--check"])
    page.write_text(page.read_text().replace("printf", "false"))
    with pytest.raises(UserError, match="status 1"):
        main([str(page)])


RESULTS = {path.stem: path for path in (ROOT / "experiments").glob("*.md")}
RESULTS["results"] = ROOT / "docs" / "results.md"
PAGES = {name: path.read_text(encoding="utf-8") for name, path in RESULTS.items()}
PAGES |= {
    name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("post-editing", "latent", "sparse-outputs")
}


def parameters(name: str) -> Iterator:
    """Commands that read records; comparisons take long, those of translations minutes: for nightly tests."""
    read = [each for each in outputs(PAGES[name]) if re.search(r"experiments/records|--list", each.command)]
    for i, command in enumerate(dict.fromkeys(output.command for output in read)):
        marks = [pytest.mark.slow, *([pytest.mark.nightly] if "compare" in command else [])]
        yield pytest.param(name, command, marks=marks, id=f"{name}-{i}")


def corpora(command: str) -> set[str]:
    """The corpora whose references a command's records are scored against."""
    records = re.search(r"\bR=(\S+)", command)
    folders = re.findall(
        r"experiments/records/([\w-]+)", command.replace("$R", records[1]) if records else command
    )
    results = [
        path for name in folders for path in expanded(ROOT / "experiments/records" / name / "*/result.json")
    ]
    runs = [json.loads(read_text(path, "the record")) for path in results]
    return {run["corpus"] for run in [run for run in runs if run["direction"] in command] or runs}


@pytest.mark.parametrize(("name", "command"), [each for name in sorted(PAGES) for each in parameters(name)])
def test_a_page_shows_what_its_commands_print(name, command):
    if "compare.py" in command:
        for needed in corpora(command):
            if not (ROOT / "data" / needed / "text").is_dir():
                pytest.skip(f"the references of {needed} are needed: scripts/prepare.py {needed}")
    printed, page = script_module("update_tables").run(command), PAGES[name]
    for output in outputs(page):
        if output.command == command:
            assert page[output.start : output.end] == rendered(output, printed)


def test_every_table_of_the_results_is_written_by_a_command():
    def tables(text: str) -> int:
        return sum(set(line) <= set("|- ") and line.count("|") > 1 for line in text.split("\n"))

    counts = {}
    for name in RESULTS:
        page = PAGES[name].partition("## Other experiments")[0]
        counts[name] = tables(page)
        assert counts[name] == sum(tables(page[output.start : output.end]) for output in outputs(page)), name
    assert sum(counts.values()) >= 10
