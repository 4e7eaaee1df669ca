"""Where commands read and write: in the root of a checkout; of an installed package, where they are run."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
IN_CHECKOUT = (_ROOT / "pyproject.toml").is_file()
ROOT = _ROOT if IN_CHECKOUT else Path()
"""The folder that paths in configs and records are relative to."""
DATA = ROOT / "data"
"""The folder of the corpora."""
SHARED = ROOT if IN_CHECKOUT else Path(__file__).parent / "shared"
"""The folder of what comes with the project: descriptions of corpora and models in data/, and configs/."""


def command_words(name: str, script: str) -> list[str]:
    """The words that start a command here: ``name`` of the package, or ``script`` of the checkout."""
    if not IN_CHECKOUT:
        return ["adaptively-sparse", name]
    path = ROOT / "scripts" / f"{script}.py"
    here = Path.cwd()
    return ["python", str(path.relative_to(here) if here in path.parents else path)]
