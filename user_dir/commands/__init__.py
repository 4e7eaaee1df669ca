"""The command ``adaptively-sparse``: a module for each of its subcommands, which parses, calls and prints.

A module has ``main(argv)`` and, where Ctrl-C deserves more than "interrupted", says so in ``INTERRUPTED``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import sys
from pathlib import Path

from .. import __version__
from ..command_line import run_command
from ..errors import UserError

COMMANDS = {
    "prepare": "prepare",
    "train": "train",
    "average": "average_checkpoints",
    "evaluate": "evaluate",
    "translate": "translate",
    "compare": "compare",
    "heads": "head_stats",
    "report": "report",
    "align": "align",
    "importance": "head_importance",
    "alphas": "dump_alphas",
    "plot-heads": "plot_heads",
    "plot-attention": "plot_attention",
    "compare-heads": "compare_heads",
    "search": "search",
    "experiment": "experiment",
    "release": "release",
    "convert": "convert_checkpoint",
    "benchmark": "benchmark",
}
"""Subcommand → its module."""


def console() -> None:
    """Run the subcommand that the command line names."""
    run_command(_dispatch)


def run(module: str) -> None:
    """Run the command of a module of this package, and exit."""
    found = importlib.import_module(f".{module}", __name__)
    main = functools.partial(_with_requirements, found.main)
    run_command(main, getattr(found, "INTERRUPTED", "interrupted"))


def _dispatch() -> None:
    parser = argparse.ArgumentParser(
        prog="adaptively-sparse",
        description="Adaptively sparse Transformers: from a corpus to translations and heads.",
        epilog="\n".join(f"  {name:<16}{_summary(module)}" for name, module in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="adaptively-sparse [--version] COMMAND …    (COMMAND --help explains a command)",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    name = parser.parse_args(sys.argv[1:2]).command
    sys.argv = [f"adaptively-sparse {name}", *sys.argv[2:]]
    run(COMMANDS[name])


def _summary(module: str) -> str:
    """The first sentence of a module's docstring, without importing it."""
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _with_requirements(main) -> None:
    """Call ``main``; raise UserError if a package that the command needs is not installed."""
    try:
        main()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == __name__.partition(".")[0]:
            raise
        raise UserError(
            f"this command needs {error.name}, which is not installed: "
            "pip install 'adaptively-sparse[analysis]'"
        ) from None
