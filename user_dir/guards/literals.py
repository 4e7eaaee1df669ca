"""Python literals as text, which fairseq evaluates in some settings: read here without running anything."""

import ast
import operator

from ..io import shown

MAX_LITERAL = 10_000  # maximum length of a literal and of its value
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def literal(text: str):
    """Evaluate a Python literal, possibly with + - and *, such as ``[(512, 3)] * 20``.

    Raises:
        ValueError: it is not a literal, or has more than 10,000 values.
    """
    try:
        if len(text) <= MAX_LITERAL:
            tree = ast.parse(text.strip(), mode="eval")
            return ast.literal_eval(_Computed().visit(tree))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError):
        pass
    raise ValueError(f"{shown(text)} is not a literal")


class _Computed(ast.NodeTransformer):
    """Replaces sums, differences and products of literals by their values."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if type(node.op) not in _OPERATORS:
            raise ValueError("not a literal")
        left, right = (ast.literal_eval(self.visit(side)) for side in (node.left, node.right))
        for sequence, count in ((left, right), (right, left)) if isinstance(node.op, ast.Mult) else ():
            if hasattr(sequence, "__len__") and len(sequence) * count > MAX_LITERAL:
                raise ValueError("too long")
        return ast.Constant(_OPERATORS[type(node.op)](left, right))


def is_literal(value) -> bool:
    """Whether evaluating a setting as Python gives plain data of reasonable size without side effects."""
    if isinstance(value, (list, tuple)):
        return all(map(is_literal, value))
    if not isinstance(value, str):  # eval also accepts bytes and other buffers
        return value is None or isinstance(value, (bool, int, float))
    try:
        literal(value)
    except ValueError:
        return False
    return True
