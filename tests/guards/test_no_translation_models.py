"""Models of the wrong kind: refused before they are built, and what is right is built."""

from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import SMALL, build_language_model, checkpoint_state, dictionary, parse

from user_dir.errors import UserError


@pytest.fixture
def task():
    cfg = TranslationConfig(data="nowhere", source_lang="de", target_lang="en")
    return TranslationTask(cfg, dictionary(), dictionary())


def settings(name, arch="transformer"):
    args = parse(f"{SMALL} --task translation", arch)
    args.arch = args._name = name
    return args


@pytest.mark.parametrize("name", ["transformer_lm", "fconv_lm", "roberta"])
def test_a_translation_task_builds_neither_a_language_model_nor_an_encoder_alone(task, name):
    reason = (
        "has no decoder" if name == "roberta" else "is a language model, which has no encoder; .*--lm-path"
    )
    with pytest.raises(UserError, match=f"{name} {reason}"):
        task.build_model(settings(name))


@pytest.mark.parametrize("name", ["transformer", "adaptively_sparse_transformer"])
def test_translation_models_are_built(task, name):
    model = task.build_model(settings(name, name))
    assert model.encoder is not None and model.decoder is not None


def test_the_checkpoint_is_named(task, tmp_path):
    path = tmp_path / "lm.pt"
    torch.save(checkpoint_state({"_name": "transformer_lm"}), path)
    with pytest.raises(UserError, match=r"cannot translate with .*lm\.pt: transformer_lm is a language"):
        checkpoint_utils.load_model_ensemble([str(path)], task=task)


def test_what_is_added_to_the_scores_is_a_language_model(task):
    model, flags = task.build_model(settings("transformer")), Namespace(beam=1)
    with pytest.raises(UserError, match="--lm-path must name a language model; it is a TransformerModel"):
        task.build_generator([model], flags, extra_gen_cls_kwargs={"lm_model": model, "lm_weight": 0.1})
    for extra in (None, {"lm_model": None}, {"lm_model": build_language_model(), "lm_weight": 0.1}):
        assert task.build_generator([model], flags, extra_gen_cls_kwargs=extra)
