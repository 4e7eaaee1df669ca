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
    one = Kind()
    assert one.method(2) == ["method", one, 2, one, 2]
    assert Kind.of_class(2) == one.of_class(2) == ["of_class", Kind, 2, Kind, 2]
    assert Kind.static(2) == one.static(2) == ["static", 2, 2]
    assert inspect.signature(Kind.method) == inspect.signature(Owner.method)
    assert Owner().method()[1:] == [1] and Owner.static(2) == [2], "the base is as it was"


def test_the_last_is_the_outermost_also_where_others_have_imported_it(monkeypatch):
    one, other, foreign = (ModuleType(f"{name}_of_this_test") for name in ("fairseq_a", "fairseq_b", "c"))
    one.function = other.function = foreign.function = lambda: []
    for module in (one, other, foreign):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for letter in "ab":
        put_around(one, "function", lambda inner, letter=letter: [letter, *inner()])
    assert one.function() == other.function() == ["b", "a"] and foreign.function() == []
