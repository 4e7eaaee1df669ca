"""The command ``adaptively-sparse``: a module for each of its subcommands, which parses, calls and prints.

A module has ``main(argv)`` and may have ``INTERRUPTED``, the message after Ctrl-C, by default "interrupted".
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys

from .. import __version__
from ..errors import UserError
from .options import run_command

COMMANDS = ("prepare", "train", "translate", "evaluate", "report", "average", "compare", "heads", "plot")
COMMANDS += ("align", "export")
"""The subcommands, everyday ones first: modules of this package."""


def console() -> None:
    """Run the subcommand that the command line names."""
    run_command(_dispatch)


def run(command: str) -> None:
    """Run a subcommand with the arguments of this process, and exit."""
    module = importlib.import_module(f".{command}", __name__)
    main = functools.partial(_with_requirements, module.main)
    run_command(main, getattr(module, "INTERRUPTED", "interrupted"))


def _dispatch() -> None:
    modules = {name: importlib.import_module(f".{name}", __name__) for name in COMMANDS}
    parser = argparse.ArgumentParser(
        prog="adaptively-sparse",
        description="Adaptively sparse Transformers: from a corpus to translations and heads.",
        epilog="\n".join(f"  {name:<11}{module.__doc__.splitlines()[0]}" for name, module in modules.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="adaptively-sparse [--version] COMMAND …    (COMMAND --help explains a command)",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    command = parser.parse_args(sys.argv[1:2]).command
    if command is None:
        parser.print_help()
        return
    sys.argv = [f"adaptively-sparse {command}", *sys.argv[2:]]
    run(command)


def _with_requirements(main) -> None:
    """Call ``main``; raise UserError if a package that the command needs is not installed."""
    try:
        main()
    except ModuleNotFoundError as error:
        named = (name for name in ("fairseq", "transformers") if error.name.startswith(name))
        extra = next(named, "analysis")
        raise UserError(
            f"this command needs {error.name}, which is not installed: "
            f"pip install 'adaptively-sparse[{extra}]'"
        ) from None
