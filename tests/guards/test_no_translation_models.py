"""Models of the wrong kind: refused before they are built, and what is right is built."""

from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import SMALL, dictionary, parse

from user_dir.errors import UserError


def translation_task():
    cfg = TranslationConfig(data="nowhere", source_lang="de", target_lang="en")
    return TranslationTask(cfg, dictionary(), dictionary())


def settings(name):
    args = parse(f"{SMALL} --task translation", "transformer")
    args.arch = args._name = name
    return args


def language_model(path=None):
    sizes = {"decoder_embed_dim": 16, "decoder_ffn_embed_dim": 8, "decoder_layers": 1}
    args = TransformerLanguageModelConfig(**sizes, decoder_attention_heads=2, tokens_per_sample=8)
    args.max_target_positions = 8
    task = translation_task()
    task.output_dictionary = task.target_dictionary
    model = TransformerLanguageModel.build_model(args, task)
    if path is not None:
        plain = {name: value for name, value in vars(args).items() if "${" not in str(value)}
        settings = Namespace(**{**plain, "_name": "transformer_lm"})
        cfg = {"model": settings, "task": {"_name": "translation", "source_lang": "de", "target_lang": "en"}}
        history = {"criterion_name": "c", "optimizer_name": "FairseqAdam", "num_updates": 3}
        history["lr_scheduler_state"] = {"best": None}
        state = {"cfg": cfg, "args": None, "model": model.state_dict(), "optimizer_history": [history]}
        torch.save({**state, "extra_state": {"train_iterator": {"epoch": 1}}}, path)
    return model


@pytest.mark.parametrize("name", ["transformer_lm", "fconv_lm"])
def test_a_translation_task_builds_no_language_model(name):
    with pytest.raises(UserError, match=f"{name} is a language model, which has no encoder; .*--lm-path"):
        translation_task().build_model(settings(name))


def test_nor_an_encoder_alone():
    with pytest.raises(UserError, match="roberta has no decoder"):
        translation_task().build_model(settings("roberta"))


@pytest.mark.parametrize("name", ["transformer", "adaptively_sparse_transformer"])
def test_translation_models_are_built(name):
    assert name in ARCH_MODEL_REGISTRY
    args = parse(f"{SMALL} --task translation", name)
    args._name = args.arch
    model = translation_task().build_model(args)
    assert model.encoder is not None and model.decoder is not None


def test_the_checkpoint_is_named(tmp_path):
    path = tmp_path / "lm.pt"
    language_model(path)
    with pytest.raises(
        UserError, match=r"cannot translate with .*lm\.pt: transformer_lm is a language model"
    ):
        checkpoint_utils.load_model_ensemble([str(path)], task=translation_task())


def test_what_is_added_to_the_scores_is_a_language_model():
    task, args = translation_task(), parse(f"{SMALL} --task translation", "transformer")
    args._name = args.arch
    model = task.build_model(args)
    flags = Namespace(beam=1)
    with pytest.raises(UserError, match="--lm-path must name a language model; it is a TransformerModel"):
        task.build_generator([model], flags, extra_gen_cls_kwargs={"lm_model": model, "lm_weight": 0.1})
    for extra in (None, {"lm_model": None}, {"lm_model": language_model(), "lm_weight": 0.1}):
        assert task.build_generator([model], flags, extra_gen_cls_kwargs=extra)
