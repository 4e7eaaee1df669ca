"""Models whose sizes ask for more memory than there is."""

import pytest
from fairseq import models
from helpers import SMALL, parse, translation_task

from user_dir.errors import UserError
from user_dir.guards import oversized_models


def test_settings_that_ask_for_more_memory_than_there_is_are_refused():
    task = translation_task()
    for flags in (
        "--encoder-embed-dim 1000000 --decoder-embed-dim 1000000",
        "--encoder-ffn-embed-dim 10000000000",
        "--max-source-positions 100000000000",
    ):
        for arch in ("transformer", "adaptively_sparse_transformer"):
            with pytest.raises(UserError, match=f"the model {arch} needs [0-9,]+ GiB"):
                models.build_model(parse(flags, arch=arch), task)
    assert models.build_model(parse(SMALL), task)


def test_a_model_just_below_the_memory_is_built(monkeypatch):
    args, task = parse(SMALL, arch="transformer"), translation_task()
    size = oversized_models.size_in_bytes(models.build_model(args, task))
    monkeypatch.setattr(oversized_models, "physical_memory", lambda: size)
    models.build_model(args, task)
    monkeypatch.setattr(oversized_models, "physical_memory", lambda: size - 1)
    with pytest.raises(UserError, match="check the sizes in its settings"):
        models.build_model(args, task)
