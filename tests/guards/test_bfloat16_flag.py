"""``--bf16`` without a TPU."""

import importlib.util

import pytest
from fairseq import options

ARGUMENTS = ["data", "--arch", "transformer", "--bf16"]


def parsed(*flags):
    return options.parse_args_and_arch(options.get_training_parser(), input_args=[*ARGUMENTS, *flags])


@pytest.mark.parametrize(
    ("there", "flags", "tpu"), [(False, [], False), (False, ["--tpu"], True), (True, [], True)]
)
def test_a_tpu_is_taken_if_there_may_be_one_or_it_is_asked_for(there, flags, tpu, monkeypatch):
    found = importlib.util.find_spec
    spec = object() if there else None
    monkeypatch.setattr(
        "user_dir.guards.bfloat16_flag.find_spec", lambda name: spec if name == "torch_xla" else found(name)
    )
    assert (parsed(*flags).tpu, parsed(*flags).bf16) == (tpu, True)
