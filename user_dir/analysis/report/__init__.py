"""The head report: one HTML page that needs nothing else, of one model or of several side by side."""

from .page import write_report

__all__ = ["write_report"]
