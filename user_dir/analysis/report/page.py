"""Assembles template, style, scripts and data into one page."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

from ...io import write_text
from ..result_files import ModelAnalysis
from .data import report_data

_FOLDER = Path(__file__).resolve().parent
_SCRIPTS = ("elements.js", "files.js", "charts.js", "figures.js", "tables.js", "words.js", "matrix.js")
_SCRIPTS += ("explorer.js", "main.js")


def write_report(models: list[ModelAnalysis], path: str | Path, sentences: int = 50) -> None:
    """Write the page about ``models`` to ``path``, with the attention maps of the first ``sentences``.

    The page loads no other files, so it works from a file:// address and without a network.
    """
    write_text(Path(path), report_page(models, sentences))


def report_page(models: list[ModelAnalysis], sentences: int = 50) -> str:
    """The page as a string."""
    title = "What the heads learned: " + ", ".join(model.name for model in models)
    parts = {
        "title": escape(title),
        "style": _read("style.css"),
        "script": "\n".join(_read(name) for name in _SCRIPTS),
        "data": script_safe(json.dumps(report_data(models, sentences), ensure_ascii=False, allow_nan=False)),
    }
    return re.sub("{{(.*?)}}", lambda match: parts[match[1]], _read("template.html"))


def script_safe(text: str) -> str:
    """Escape JSON for a script element, so that no ``<`` can end the element or open a comment."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
