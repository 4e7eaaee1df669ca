"""Numbers that a setting cannot have, from a config or from flags."""

from argparse import Namespace
from dataclasses import fields, is_dataclass

import pytest
from fairseq.dataclass import initialize
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from helpers import parse

import user_dir.tasks  # noqa: F401
from user_dir.errors import UserError
from user_dir.guards.ranges import check_ranges

OTHERS = ("--activation-dropout 1.5", "--max-update -1", "--decoder-layers -2", "--label-smoothing 2")
OTHERS += ("--clip-norm -1", "--save-interval 0")


@pytest.mark.parametrize(
    "flags",
    [
        "--lr -0.003",
        "--dropout -1",
        "--encoder-layers 1000000000",
        "--label-smoothing 1",
        "--update-freq 0",
        "--max-tokens 0",
        "--encoder-attention-heads 0",
        *(pytest.param(flags, marks=pytest.mark.nightly) for flags in OTHERS),
    ],
)
def test_a_number_out_of_its_range_is_named(flags):
    flag, value = flags.split()
    words = f"--task translation --criterion label_smoothed_cross_entropy --optimizer adam {flags}"
    cfg = convert_namespace_to_omegaconf(parse(words))
    with pytest.raises(UserError, match=rf"{flag[2:].replace('-', '_')} must be from .* {value}(\.0)?$"):
        initialize.add_defaults(cfg)


def test_settings_that_fairseq_declares_nowhere_are_checked_too():
    with pytest.raises(UserError, match=r"model\.dropout"):
        check_ranges({"model": Namespace(dropout=7.0), "task": None, "common": {"log_interval": "${x}"}})
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(UserError, match=r"task\.bpe_dropout"):
            check_ranges({"task": {"bpe_dropout": wrong}})
    check_ranges({"model": Namespace(dropout="0.3", fp16=True, lr=[0.0, 1])})


def test_all_defaults_are_in_range():
    registries = [registry["dataclass_registry"] for registry in REGISTRIES.values()]
    known = [MODEL_DATACLASS_REGISTRY, TASK_DATACLASS_REGISTRY, *registries]
    declared = [kind() if isinstance(kind, type) else kind for kinds in known for kind in kinds.values()]
    declared += filter(is_dataclass, vars(FairseqConfig()).values())
    assert len(declared) > 100
    for settings in declared:
        values = {entry.name: getattr(settings, entry.name, None) for entry in fields(settings)}
        check_ranges({type(settings).__name__: values})
