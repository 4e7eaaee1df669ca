"""Tables of a Markdown page that are the output of the command shown above them.

A command stands in a fence of the language ``sh``. What it prints stands between two comments further down::

    <!-- output: What the heads are like -->
    <!-- end -->

``output:`` names sections of what is printed, parted by semicolons: a section is a line of its own that is
followed by a table, and all until the next such line. ``output`` alone is everything. Legends (lists)
are left out: the page explains its tables once. Several outputs may follow one command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import UserError

_PARTS = re.compile(
    r"^```sh\n(?P<command>.*?)^```$"
    r"|^(?P<begin><!-- output(?:: (?P<titles>.*?))? -->)\n(?P<shown>.*?)^<!-- (?P<end>\w+)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Output:
    """What a page shows of a command's output, and where: from character ``start`` to ``end`` of the page."""

    command: str
    titles: tuple[str, ...]
    start: int
    end: int


def outputs(page: str) -> Iterator[Output]:
    """Every output of a page, in order; raises a UserError where one has no command or no end."""
    command = None
    for part in _PARTS.finditer(page):
        if part["command"] is not None:
            command = part["command"]
            continue
        line = page.count("\n", 0, part.start()) + 1
        if command is None:
            raise UserError(f"line {line}: {part['begin']} has no command in a ```sh fence above it")
        if part["end"] != "end":
            raise UserError(f"line {line}: {part['begin']} lacks <!-- end --> after it")
        titles = tuple(title.strip() for title in (part["titles"] or "").split(";") if title.strip())
        yield Output(command, titles, part.start("shown"), part.end("shown"))


def sections(printed: str) -> dict[str, str]:
    """What a command printed, by title; titles are without asterisks."""
    found: dict[str, list[str]] = {}
    paragraphs = _paragraphs(printed)
    title = None
    for paragraph, following in zip(paragraphs, [*paragraphs[1:], ""]):
        if "\n" not in paragraph and following.startswith("|"):
            title = paragraph.strip("* ")
            found[title] = []
        elif title is not None:
            found[title].append(paragraph)
    return {title: "\n\n".join(each) for title, each in found.items()}


def updated(page: str, run: Callable[[str], str]) -> str:
    """The page with every output as its command prints it now.

    Args:
        page: Markdown.
        run: runs a command and returns what it printed.

    Raises:
        UserError: an output has no command or no end, or names a section that is not printed.
    """
    printed: dict[str, str] = {}
    pieces, done = [], 0
    for output in outputs(page):
        if output.command not in printed:
            printed[output.command] = run(output.command)
        pieces += [page[done : output.start], rendered(output, printed[output.command])]
        done = output.end
    return "".join([*pieces, page[done:]])


def rendered(output: Output, printed: str) -> str:
    """What a page shows of what a command printed; raises a UserError if a section is not there."""
    text = printed.strip("\n")
    if output.titles:
        there = sections(text)
        missing = [title for title in output.titles if title not in there]
        if missing:
            raise UserError(
                f"{output.command.split()[1]} prints no section {missing[0]!r}; "
                f"there are {', '.join(there) or 'none'}"
            )
        text = "\n\n".join(there[title] for title in output.titles)
    shown = [each for each in _paragraphs(text) if not each.startswith("- ")]
    return "\n{}\n\n".format("\n\n".join(map(_narrow, shown)))


def _paragraphs(text: str) -> list[str]:
    return [each.strip("\n") for each in re.split(r"\n\s*\n", text) if each.strip()]


def _narrow(text: str) -> str:
    """Tables without the spaces that align their columns, which would change with any cell."""
    lines = [
        re.sub(r"-{3,}", "---", re.sub(r" {2,}", " ", line)).replace("|---", "| ---").replace("---|", "--- |")
        if line.startswith("|")
        else line
        for line in text.split("\n")
    ]
    return "\n".join(lines)
