"""Notebooks run without Jupyter: each code cell in this process, and what it leaves as nbformat's outputs.

usage: notebooks.py NOTEBOOK.ipynb    runs it and writes the outputs into it
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path


def execute(notebook: dict, changes: dict[str, str] | None = None) -> list[list[dict]]:
    """The outputs of each code cell, run in order in one namespace; an exception in a cell is raised.

    Args:
        notebook: as nbformat's JSON has it.
        changes: text of the code → what to run in its place; each must be there.
    """
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for old, new in (changes or {}).items():
        assert sum(source.count(old) for source in sources) == 1, old
        sources = [source.replace(old, new) for source in sources]
    namespace: dict = {"__name__": "__main__"}
    return [_run(source, namespace) for source in sources]


def _run(source: str, namespace: dict) -> list[dict]:
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    said, value = io.StringIO(), None
    with contextlib.redirect_stdout(said):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    outputs = []
    if said.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(said.getvalue())})
    if value is not None:
        result = {"data": _shown(value), "execution_count": None, "metadata": {}}
        outputs.append({**result, "output_type": "execute_result"})
    return outputs


def _shown(value) -> dict:
    data = {"text/plain": [repr(value)]}
    if hasattr(value, "savefig"):
        image = io.BytesIO()
        value.savefig(image, format="png", dpi=90)
        data["image/png"] = base64.b64encode(image.getvalue()).decode()
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run a notebook and write its outputs."""
    path = Path(sys.argv[1])
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(cells, execute(notebook)), start=1):
        cell["outputs"], cell["execution_count"] = outputs, number
        for output in outputs:
            if "execution_count" in output:
                output["execution_count"] = number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
