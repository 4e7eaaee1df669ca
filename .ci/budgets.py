"""Compare the size of the project with ``[tool.budgets]`` of pyproject.toml; status 1 if it is larger."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


def lines(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_bytes().splitlines())


def sizes(budgets: dict) -> dict[str, tuple[int, int]]:
    """What is measured → its size, and at most how large it may be."""
    measured = {}
    for name, most in budgets["folders"].items():
        measured[f"lines of {name}"] = sum(map(lines, (ROOT / name).rglob("*.py"))), most
    rooms = [path.name for path in (ROOT / "user_dir").iterdir() if any(path.glob("*.py"))]
    for name in sorted(rooms):
        size = sum(map(lines, (ROOT / "user_dir" / name).rglob("*.py")))
        measured[f"lines of user_dir/{name}"] = size, budgets["rooms"].get(name, 0)
    for path in (ROOT / "user_dir").rglob("*.py"):
        name = path.relative_to(ROOT)
        measured[f"lines of {name}"] = lines(path), budgets["file"]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                size = node.end_lineno - node.lineno + 1
                measured[f"lines of {node.name} in {name}"] = size, budgets["function"]
    return measured


if __name__ == "__main__":
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    over = {what: pair for what, pair in sizes(settings["tool"]["budgets"]).items() if pair[0] > pair[1]}
    for what, (size, most) in over.items():
        print(f"{what}: {size:,}, at most {most:,}")
    print(f"{len(over)} over budget")
    sys.exit(bool(over))
