"""How guards change fairseq: functions that stand around fairseq's own once their guard is installed."""

import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable
from types import ModuleType

_marked: dict[str, list[tuple]] = defaultdict(list)  # by the guard's module: owner, name, function


def around(owner, name: str) -> Callable:
    """Mark a function that stands around ``owner.name``, a function or method, once its guard is installed.

    Its first argument is what it stands around, the others are those of the call. A method of a class gets
    ``self`` or ``cls`` second.
    """

    def mark(function: Callable) -> Callable:
        _marked[function.__module__].append((owner, name, function))
        return function

    return mark


def install(guard: ModuleType) -> None:
    """Put the marked functions of a guard in their places; then call its ``install``, if it has one."""
    for owner, name, function in _marked[guard.__name__]:
        put_around(owner, name, function)
    if hasattr(guard, "install"):
        guard.install()


def put_around(owner, name: str, function: Callable) -> None:
    """Put one function in its place, also where other modules of fairseq have imported what it replaces."""
    found = inspect.getattr_static(owner, name)
    kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
    inner = found.__func__ if kind else found

    @functools.wraps(inner)
    def outer(*args, **kwargs):
        return function(inner, *args, **kwargs)

    outer.guard = function.__module__
    setattr(owner, name, kind(outer) if kind else outer)
    for place, module in list(sys.modules.items()) if isinstance(owner, ModuleType) else ():
        if place.startswith("fairseq") and getattr(module, name, None) is inner:
            setattr(module, name, outer)
