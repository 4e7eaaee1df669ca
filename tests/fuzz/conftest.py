"""Counts the cases of each test and prints them at the end, also under xdist."""

from __future__ import annotations

import pytest
import search

_HEADER = "cases of search"


@pytest.fixture(autouse=True)
def _count(request):
    search.cases = 0
    yield
    request.node.user_properties.append((_HEADER, search.cases or 1))


def pytest_terminal_summary(terminalreporter):
    """Cases and seconds by file."""
    found: dict[str, list] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if not isinstance(report, pytest.TestReport) or "/fuzz/" not in report.nodeid:
                continue
            line = found.setdefault(report.nodeid.split("::")[0], [set(), 0, 0.0])
            line[0].add(report.nodeid)
            line[2] += report.duration
            if report.when == "teardown":
                line[1] += sum(count for name, count in report.user_properties if name == _HEADER)
    if not found:
        return
    terminalreporter.section(_HEADER)
    for file, (tests, count, seconds) in sorted(found.items()):
        terminalreporter.write_line(f"{file:36} {count:7,} cases {len(tests):4} tests {seconds:7.0f} s")
    total = [sum(line[i] for line in found.values()) for i in (1, 2)]
    kinds = sum(len(line[0]) for line in found.values())
    terminalreporter.write_line(f"{'all':36} {total[0]:7,} cases {kinds:4} tests {total[1]:7.0f} s")
