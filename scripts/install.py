#!/usr/bin/env python3
"""Install the requirements into .venv, at the versions that constraints.txt names.

`make` runs this before anything else; if .venv is up to date, it takes a moment. .venv is made with the
Python that runs this script. A finished .venv is kept with any supported Python or, with --this-python, only
with this one. The script needs only the standard library; an unsupported Python ends with a message.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import _checkout  # noqa: F401  finds the package

from user_dir.commands.options import run_command

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / ".installed"
CONSTRAINTS = ROOT / "constraints.txt"
REQUIREMENTS = (ROOT / "requirements.txt", ROOT / "requirements-dev.txt")
OLDEST, NEWEST = (3, 10), (3, 12)
# fairseq is compiled against these, which must therefore be there first.
BUILDS_FAIRSEQ = ("cython", "ninja", "numpy", "setuptools", "torch")


def parse_args(argv=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--this-python", action="store_true", help="no .venv of another Python will do")
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Make .venv, or bring it up to date if it is not."""
    this_python = parse_args(argv).this_python
    finished = STAMP.exists() and works(VENV, sys.version_info[:2] if this_python else None)
    if finished and STAMP.stat().st_mtime >= max(
        file.stat().st_mtime for file in (*REQUIREMENTS, CONSTRAINTS)
    ):
        return
    if not finished:
        check_python()
        check_compiler()
        if VENV.is_symlink():
            sys.exit(f"error: .venv is a link to {VENV.resolve()}, where that environment is not; remove it")
        # Packages that an interrupted installation left may be incomplete, so all are removed.
        run(sys.executable, "-m", "venv", "--clear", VENV)
    print("installing the requirements into .venv, which takes some minutes", flush=True)
    pip("--quiet", "--upgrade", "pip")
    pip("--quiet", *BUILDS_FAIRSEQ)
    requirements = (word for file in REQUIREMENTS for word in ("--requirement", file))
    pip("--quiet", "--no-build-isolation", *requirements)
    # fairseq needs it only for speech. Beside a CPU-only torch, importing it fails, and transformers with it.
    run(python_of(VENV), "-m", "pip", "uninstall", "--quiet", "--yes", "torchaudio")
    STAMP.touch()


def works(venv: Path, version=None) -> bool:
    """Whether the Python of ``venv`` is there, supported, and of ``version`` if one is given."""
    try:
        said = subprocess.run(
            [python_of(venv), "-c", "import sys; print(*sys.version_info[:2])"],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    actual = tuple(int(number) for number in said.split())
    return OLDEST <= actual <= NEWEST and version in (None, actual)


def check_python() -> None:
    """End with a sentence if this Python is not supported."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
        sys.exit(
            f"error: Python {platform.python_version()} ({sys.executable}) is not supported, only {oldest} "
            f"to {newest}; name one of these: make PYTHON=python{newest}"
        )


def check_compiler() -> None:
    """End with a sentence if fairseq has to be compiled here and cannot be."""
    if (sys.version_info[:2], platform.system(), platform.machine()) == ((3, 12), "Linux", "x86_64"):
        return  # the one for which fairseq comes compiled
    needed = f"fairseq is compiled on Python {platform.python_version()}"
    for compiler in (os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")):
        if shutil.which(compiler.split()[0]) is None:
            sys.exit(
                f"error: {needed}, and there is no compiler {compiler}; install one (Debian: g++, macOS: "
                "xcode-select --install), or take Python 3.12 on x86-64 Linux"
            )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        sys.exit(
            f"error: {needed}, and there is no {header}; install this Python's headers (Debian: python3-dev)"
        )


def pip(*words) -> None:
    """Install into .venv, within the constraints."""
    run(python_of(VENV), "-m", "pip", "install", "--constraint", CONSTRAINTS, *words)


def run(*command) -> None:
    """Run a command; if it fails, exit with its status, since it has printed the reason."""
    status = subprocess.run([str(word) for word in command]).returncode
    if status != 0:
        sys.exit(status)


def python_of(venv: Path) -> str:
    """The Python of an environment."""
    return str(venv / "bin" / "python")


if __name__ == "__main__":
    run_command(main)
