"""Run scripts where something is wrong: with stdout, with permissions, or with what they are given.

``adverse.py SITUATION SCRIPT WORD…``, where SITUATION is a function below, or several separated by commas.
``adverse.py all`` reads a JSON list of such commands and runs each as a fork, which is immediate where a
script loads no library; it prints a JSON list of status, stdout and stderr.
``adverse.py every-option SCRIPT FOLDER [WORD…]`` gives the script one bad value after the other, see
:func:`every_option`, and prints a JSON line for each.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import io
import json
import logging
import os
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

LONG = "x" * 300
# For every option that is a path these are refused, whatever else is given. The fifth is no UTF-8.
NO_FILE = ("", ".", "/", "..", "\udcff.json", LONG, f"a/{LONG}.json")
OTHER = ("%s %(prog)s %", "/proc/none/x.json", "/dev/null/x.json", "missing.json", "-", "a\nb\x1b[2J.json")
NUMBERS = ("0", "-1", "nan", "inf", "1e400", "x", "", "9" * 5000, "-" + "9" * 30)


def ascii() -> None:
    """A terminal that knows ASCII alone."""
    sys.stdout.reconfigure(encoding="ascii", errors="strict")


def latin1() -> None:
    """A terminal that has ± and no α."""
    sys.stdout.reconfigure(encoding="latin-1", errors="strict")


def full() -> None:
    """Stdout is a file on a full disk."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def closed() -> None:
    """Nobody reads the pipe that stdout is."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def interrupted() -> None:
    """Ctrl-C as soon as the command line is read."""
    argparse.ArgumentParser.parse_known_args = lambda *args, **more: os.kill(os.getpid(), signal.SIGINT)


def unprivileged() -> None:
    """Permissions hold for root, too."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


class _Parsed(Exception):
    """Carries the parser of a script."""


def parser_of(script: str) -> argparse.ArgumentParser:
    """The parser that a script reads its command line with."""

    def stop(self, *args, **more):
        raise _Parsed(self)

    parse, argparse.ArgumentParser.parse_known_args = argparse.ArgumentParser.parse_known_args, stop
    words, sys.argv = sys.argv, [script]
    try:
        runpy.run_path(script, run_name="__main__")
    except _Parsed as parsed:
        return parsed.args[0]
    finally:
        argparse.ArgumentParser.parse_known_args = parse
        sys.argv = words
    raise AssertionError(f"{script} parses nothing")


def commands(parser: argparse.ArgumentParser):
    """Each subcommand's words and parser; the parser itself if it has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield [name], inner
            return
    yield [], parser


def words_for(action: argparse.Action, value: str) -> list[str]:
    """What gives an option, or a positional argument, its value."""
    named = value if not isinstance(action.metavar, tuple) else None
    values = [value] if named is not None else ["a system", value]  # --system NAME FILE…
    if not action.option_strings:
        return values
    return (
        [f"{action.option_strings[-1]}={value}"] if len(values) == 1 else [action.option_strings[-1], *values]
    )


def is_path(action: argparse.Action) -> bool:
    return getattr(action.type, "__name__", "") in ("file_path", "path_of")


def every_option(script: str, folder: Path, working: list[str]):
    """Give each option of a script every bad value; yield what came of it.

    The rest of the command is ``working``, or if that is empty, files that are not there.
    """
    (folder / "unreadable.json").write_text("{}")
    (folder / "unreadable.json").chmod(0)
    (folder / "locked").mkdir()
    (folder / "locked").chmod(0o500)
    no_permission = (f"{folder}/unreadable.json", f"{folder}/locked/new.json")
    for subcommand, parser in commands(parser_of(script)):
        actions = [each for each in parser._actions if each.nargs != 0 and not each.choices]
        for action in actions:
            if working and not action.option_strings:
                continue
            rest = [*working] or [*subcommand]
            if not working:
                for each in actions:
                    if each is not action and each.required:
                        rest += words_for(each, "1" if each.type and not is_path(each) else "missing")
            kind = getattr(action.type, "__name__", "str")
            for value in (*NO_FILE, *OTHER, *no_permission, *NUMBERS):
                if kind in ("int", "float", "number") and value not in NUMBERS:
                    continue
                if not action.option_strings and value.startswith("-"):
                    continue
                given = [*rest, *words_for(action, value)]
                status, said = outcome(script, given)
                refuse = is_path(action) and value in NO_FILE[:1] + NO_FILE[4:]
                refuse |= kind == "file_path" and value in NO_FILE
                yield {"words": given, "status": status, "said": said, "refuse": refuse}


def outcome(script: str, words: list[str]) -> tuple[int, str]:
    """Exit status and stderr of a script in this process."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    sys.argv, status = [script, *words], 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            status = end.code or 0
            if isinstance(status, str):
                print(status, file=sys.stderr)
                status = 1
        except BaseException:
            traceback.print_exc()
            status = 1
    said.flush()
    return status, said.buffer.getvalue().decode()


def _no_training(*command):
    raise AssertionError(f"it begins: {command}")


def _no_benchmark(*settings):
    raise SystemExit(0)  # what was given is sound


def run(situation: str, script: str, *words: str) -> None:
    """Run a script in a situation; it ends this process, or returns."""
    for each in filter(None, situation.split(",")):
        globals()[each]()
    sys.path[0], sys.argv = os.path.dirname(script), [script, *words]
    runpy.run_path(script, run_name="__main__")


def run_all(every: list[list[str]]) -> list[list]:
    """Run commands one by one, each in a fork of its own."""
    # A shell starts background jobs with Ctrl-C ignored, and children inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    importlib.import_module("user_dir.commands.options")  # what all of them import
    sys.path.pop(0)
    results = []
    for command in every:
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = os.fork()
            if not process:
                os.dup2(stdout.fileno(), 1), os.dup2(stderr.fileno(), 2)
                return run(*command)
            results.append([os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])])
            for file in (stdout, stderr):
                file.seek(0)
                results[-1].append(file.read().decode())
    print(json.dumps(results))
    return results


if __name__ == "__main__":
    if sys.argv[1] == "all":
        run_all(json.load(sys.stdin))
    elif sys.argv[1] == "every-option":
        _, _, script, folder, *words = sys.argv
        root = str(Path(script).resolve().parents[1])
        sys.path[0], sys.path[1:1] = os.path.dirname(script), [root]
        from user_dir.benchmarks import machine

        os.execve, machine.record = _no_training, _no_benchmark
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        unprivileged()
        out = sys.stdout
        for each in every_option(script, Path(folder), words):
            print(json.dumps(each), file=out, flush=True)
    else:
        run(*sys.argv[1:])
