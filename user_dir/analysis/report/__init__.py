"""The head report: a self-contained HTML page about one model or several side by side."""

from .page import write_report

__all__ = ["write_report"]
