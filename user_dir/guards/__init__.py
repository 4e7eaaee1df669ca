"""Repairs of fairseq that an ordinary run of this plugin needs: else it is wrong, loses work or cannot start.

A repair is a function that wraps one of fairseq's. :func:`around` marks it, and :func:`install` puts all of
them in place. docs/fairseq.md lists the repairs, and the faults of fairseq that are left as they are.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType

# In the order of installation: the last one wraps the others.
_MODULES = ("resuming", "translation", "training", "data", "ranges", "alignment", "crashes", "short_log")
_marks: list[tuple] = []  # owner, name, function


def around(owner, name: str) -> Callable:
    """Mark a function that will wrap ``owner.name``, a function or method.

    Its first argument is the wrapped function, and the others are those of the call. Around a method, the
    second is ``self`` or ``cls``.
    """

    def mark(function: Callable) -> Callable:
        _marks.append((owner, name, function))
        return function

    return mark


def install() -> None:
    """Put all repairs in place: the marked functions, and what the modules of this package install."""
    modules = [importlib.import_module(f".{name}", __name__) for name in _MODULES]
    while _marks:
        put_around(*_marks.pop(0))
    for module in modules:
        if hasattr(module, "install"):  # for repairs that wrap no function
            module.install()


def put_around(owner, name: str, function: Callable) -> None:
    """Wrap ``owner.name``, also where other modules of fairseq have imported the original."""
    original = inspect.getattr_static(owner, name)
    kind = type(original) if isinstance(original, (classmethod, staticmethod)) else None
    inner = original.__func__ if kind else original

    @functools.wraps(inner)
    def outer(*args, **kwargs):
        return function(inner, *args, **kwargs)

    setattr(owner, name, kind(outer) if kind else outer)
    for place, module in list(sys.modules.items()) if isinstance(owner, ModuleType) else ():
        if place.startswith("fairseq") and getattr(module, name, None) is inner:
            setattr(module, name, outer)
