"""Layout rules that linters do not check: which modules patch, and imports of private names."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import grimp

PACKAGE = Path(__file__).resolve().parents[1] / "user_dir"
MODULES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(module: ast.Module) -> set[str]:
    """The names bound by a module's imports of fairseq and PyTorch."""
    names = set()
    for node in ast.walk(module):
        origin = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) and not node.level else ""
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            whole = f"{origin}.{alias.name}" if origin else alias.name
            if origin is not None and whole.split(".")[0] in ("fairseq", "fairseq_cli", "torch"):
                names.add(alias.asname or alias.name.split(".")[0])
    return names


def root(target: ast.expr) -> str | None:
    while isinstance(target, ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def patches(module: ast.Module) -> list[str]:
    """Assignments to attributes of names imported from fairseq or PyTorch, and functions around theirs."""
    names, found = imported(module), []
    for node in ast.walk(module):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("around", "put_around"):
            targets = [ast.Attribute(node.args[0], ast.unparse(node.args[1]))]
        found += [
            ast.unparse(target)
            for target in targets
            if isinstance(target, ast.Attribute) and root(target) in names
        ]
    return found


def test_only_guards_patch_fairseq_and_pytorch():
    found = {path.relative_to(PACKAGE).as_posix(): patches(tree(path)) for path in MODULES}
    patching = {name for name, targets in found.items() if targets}
    assert "guards/training.py" in patching, "the search finds nothing"
    assert {name for name in patching if not name.startswith("guards/")} == set()


def test_no_module_imports_itself_through_others():
    graph = grimp.build_graph("user_dir")
    importing = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert importing["user_dir.decoding.generator"] >= {"user_dir.decoding.native"}
    while leaves := {name for name, others in importing.items() if not others & importing.keys()}:
        importing = {name: others for name, others in importing.items() if name not in leaves}
    assert importing == {}


def private_imports(path: Path) -> list[str]:
    """Names with a leading underscore that a module imports from another package."""
    return [
        f"{path.relative_to(PACKAGE)}: {alias.name}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.level > 1
        for alias in node.names
        for name in (alias.name, *(node.module or "").split("."))
        if name.startswith("_") and not name.endswith("__")
    ]


def test_no_package_imports_private_names_of_another():
    assert [found for path in MODULES for found in private_imports(path)] == []
