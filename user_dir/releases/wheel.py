"""The package as pip installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..checkout import IN_CHECKOUT, ROOT
from ..errors import UserError

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
_EPOCH = "315532800"  # 1980, the first year that a zip file can name


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the repository's working tree in ``folder``; equal files give equal bytes.

    It is built from a copy, which leaves the repository untouched and excludes stale files; without the
    corpora, configs and models of the working tree, which may be the user's own.

    Raises:
        UserError: this is not the repository, or pip fails.
    """
    if not IN_CHECKOUT:
        raise UserError("a wheel is built from the repository; run python scripts/release.py in a checkout")
    copy = folder / "source"
    shutil.copytree(ROOT / "user_dir", copy / "user_dir", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("data", "configs"):
        (copy / name).mkdir()
    for path in copy.rglob("*"):  # whatever the umask was at checkout, or is now
        path.chmod(0o755 if path.is_dir() else 0o644)
    wheel = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, copy]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _EPOCH}
    done = subprocess.run(wheel, capture_output=True, text=True, env=environment, umask=0o022)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().split("\n")[-1]
        raise UserError(f"pip cannot build the wheel: {reason}; is the environment that of `make setup`?")
    (built,) = folder.glob("*.whl")
    return built
