"""Each setting is converted to its type by one rule, or refused."""

import argparse

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

from user_dir.sections import section_dataclass, section_flags
from user_dir.setting_types import NUMBER, TEXT, TRUTH, WHOLE_NUMBER, setting_types


@pytest.mark.parametrize("words, truth", [("true yes on y 1 Yes", True), ("false no off n 0 OFF", False)])
def test_words_of_truth(words, truth):
    for word in words.split():
        assert TRUTH(word) is truth
    assert TRUTH(truth) is truth and TRUTH(int(truth)) is truth and TRUTH(None) is None


@pytest.mark.parametrize(
    "kind, values",
    [
        (TRUTH, ["maybe", "", "2", 2, -1, 1.0, [True], {}]),
        (WHOLE_NUMBER, ["012", "1.0", "1e3", 1.5, 3.0, True, "", "1_000", " 1", [1], "9" * 30]),
        (NUMBER, ["012", "much", "nan", float("nan"), True, "", [0.1], "1_0"]),
        (TEXT, [False, True, 2016, 0.1, ["a"], {"a": 1}]),
    ],
)
def test_what_is_of_another_type_is_refused(kind, values):
    for value in values:
        with pytest.raises(ValueError, match=f"must be {kind.words}, not"):
            kind(value)


def test_numbers_and_their_text():
    assert NUMBER("1e-4") == 1e-4 and NUMBER("0.5") == 0.5 and NUMBER(3) == 3 and NUMBER("-0") == 0
    assert WHOLE_NUMBER("12") == WHOLE_NUMBER(12) == 12 and WHOLE_NUMBER("-1") == -1
    assert TEXT("no") == "no"


@pytest.mark.parametrize("arch", ["transformer", "adaptively_sparse_transformer_lm"])
def test_on_and_off_of_yaml_are_choices_where_they_are_among_them(arch):
    types = setting_types("model", arch)
    words = {True: "on", False: "off", "on": "on", "off": "off", "auto": "auto", None: None}
    assert {given: types["cuda_graphs"](given) for given in words} == words
    for given in ("sometimes", 1):
        with pytest.raises(ValueError, match="one of auto, off, on"):
            types["cuda_graphs"](given)


SECTIONS = {"model": ARCH_MODEL_REGISTRY, "task": TASK_REGISTRY}
SECTIONS |= {kind: registry["registry"] for kind, registry in REGISTRIES.items()}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_flag_takes_what_argparse_takes(section):
    """The oracle is argparse itself: the text of a flag becomes the same value."""
    texts = {int: "7", float: "0.25", str: "word", None: "word"}
    for name in SECTIONS[section]:
        if section_dataclass(section, name) is not None:
            continue
        try:
            flags = section_flags(section, name) or {}
        except argparse.ArgumentError:  # two flags of one name, which fairseq does not survive either
            continue
        types = setting_types(section, name)
        for dest, action in flags.items():
            if not action.option_strings or action.nargs not in (None, 0) or types.get(dest) is None:
                continue
            if action.nargs == 0:
                assert types[dest]("no") is False and types[dest](True) is True
                with pytest.raises(ValueError, match="must be true or false"):
                    types[dest]("maybe")
            elif action.type in texts:
                text = str(next(iter(action.choices))) if action.choices else texts[action.type]
                parser = argparse.ArgumentParser()
                parser._add_action(action)
                parsed = getattr(parser.parse_args([action.option_strings[-1], text]), dest)
                if type(action).__name__ == "_StoreAction":
                    assert types[dest](text) == parsed
                    with pytest.raises(ValueError, match="must be"):
                        types[dest]({})


@pytest.mark.parametrize("value", [[10, 20], "10,20", "[10, 20]", (10, 20)])
def test_lists_of_our_models(value):
    cutoffs = setting_types("model", "adaptively_sparse_transformer")["adaptive_softmax_cutoff"]
    assert list(cutoffs(value)) == [10, 20]


@pytest.mark.parametrize("value", ["__import__('os')", "print(1)", "a.b()", True, "[1, x()]"])
def test_text_that_would_run_is_refused(value):
    cutoffs = setting_types("model", "adaptively_sparse_transformer")["adaptive_softmax_cutoff"]
    with pytest.raises(ValueError, match="must be what --adaptive-softmax-cutoff takes"):
        cutoffs(value)
