"""Functions that stand around others: of modules, classes and their instances, one around the other."""

import inspect
import sys
from types import ModuleType

from user_dir.guards import put_around


class Owner:
    def method(self, x=1):
        return [self, x]

    @classmethod
    def of_class(cls, x):
        return [cls, x]

    @staticmethod
    def static(x):
        return [x]


def test_each_kind_of_function_gets_what_it_stands_around_and_its_arguments():
    class Kind(Owner):
        pass

    def twice(inner, *args):
        return [inner.__name__, *inner(*args), *inner(*args)]

    for name in ("method", "of_class", "static"):
        put_around(Kind, name, twice)
    instance = Kind()
    assert instance.method(2) == ["method", instance, 2, instance, 2]
    assert Kind.of_class(2) == instance.of_class(2) == ["of_class", Kind, 2, Kind, 2]
    assert Kind.static(2) == instance.static(2) == ["static", 2, 2]
    assert inspect.signature(Kind.method) == inspect.signature(Owner.method)
    assert Owner().method()[1:] == [1] and Owner.static(2) == [2], "the base is as it was"


def test_the_last_is_the_outermost_also_where_others_have_imported_it(monkeypatch):
    first, other, foreign = (ModuleType(f"{name}_of_this_test") for name in ("fairseq_a", "fairseq_b", "c"))
    first.function = other.function = foreign.function = lambda: []
    for module in (first, other, foreign):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for letter in "ab":
        put_around(first, "function", lambda inner, letter=letter: [letter, *inner()])
    assert first.function() == other.function() == ["b", "a"] and foreign.function() == []
