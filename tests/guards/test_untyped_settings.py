"""Settings without a dataclass are converted to their types, or refused with key and value."""

import pytest
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass import initialize
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf
from untrained import make_checkpoint, make_data

import user_dir.models  # noqa: F401  installs the guards
from user_dir.config import check_settings, hydra_overrides
from user_dir.errors import UserError

ARCH = "adaptively_sparse_transformer"
FLAGS = ("share_all_embeddings", "encoder_normalize_before")
SMALL = {f"{side}_{name}": 8 for side in ("encoder", "decoder") for name in ("embed_dim", "ffn_embed_dim")}
SMALL |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
YES = ("yes", "True", "1", True, 1)  # other words are in tests/test_setting_types.py
WRONG = [("share_all_embeddings", "maybe"), ("encoder_normalize_before", 2), ("dropout", "much")]
WRONG += [("encoder_layers", 1.5), ("alpha_min", [1])]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    make_data(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "checkpoint_last.pt"
    make_checkpoint(path, ARCH, "translation", data, False)
    return path


def completed(data, **model):
    """The settings with which fairseq-hydra-train begins."""
    task = {"_name": "translation", "data": str(data), "source_lang": "de", "target_lang": "en"}
    cfg = OmegaConf.create({"task": task, "model": {"_name": ARCH, **SMALL, **model}})
    initialize.add_defaults(cfg)
    return cfg


def traits(model) -> tuple[bool, bool]:
    """Whether embeddings are shared, and whether the encoder's layers are pre-norm, as the model has it."""
    same = model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    tied = model.decoder.output_projection.weight is model.decoder.embed_tokens.weight
    assert same == tied
    norms = {layer.normalize_before for layer in model.encoder.layers}
    assert norms == {model.encoder.layer_norm is not None}  # pre-norm needs a last one
    return same, norms.pop()


@pytest.mark.parametrize("value", ["no", "yes", False, 1], ids=repr)
def test_the_model_has_what_the_words_say(data, value):
    cfg = completed(data, **dict.fromkeys(FLAGS, value))
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    assert traits(model) == (value in YES, value in YES)


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("value", ["no", "0", "yes", "True"])
def test_so_do_configs_and_their_overrides(data, tmp_path, value, in_file):
    path, given = tmp_path / "mine.yaml", {**SMALL, **({} if not in_file else dict.fromkeys(FLAGS, value))}
    lines = [f"  {key}: {setting}" for key, setting in given.items()]
    task = f"task:\n  _name: translation\n  data: {data}\n  source_lang: de\n  target_lang: en\n"
    path.write_text(f"{task}model:\n  _name: {ARCH}\n" + "\n".join(lines) + "\n")
    changes = [] if in_file else [f"model.{flag}={value}" for flag in FLAGS]
    settings = check_settings(path, hydra_overrides(path, changes))
    cfg = completed(data, **{key: each for key, each in settings["model"].items() if key != "_name"})
    truth = value in YES
    assert traits(tasks.setup_task(cfg.task).build_model(cfg.model)) == (truth, truth)


@pytest.mark.parametrize("key, value", WRONG)
def test_hydra_refuses(data, key, value):
    completed(data, dropout="0.1", encoder_layers="2")
    with pytest.raises(SystemExit) as end:
        completed(data, **{key: value})
    assert key in str(end.value) and repr(value) in str(end.value)
    with pytest.raises(SystemExit, match="drop_out"):
        completed(data, drop_out=0.1)


@pytest.mark.parametrize("value", ["no", "1", False, True], ids=repr)
def test_overrides_of_a_checkpoint(checkpoint, data, value):
    """Sharing is not among them: it is fixed by the parameters, and so is what the encoder normalizes."""
    overrides = {"data": str(data), "no_scale_embedding": value}
    (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)], overrides)
    assert (model.encoder.embed_scale == 1) == (value in YES)
    interface = ARCH_MODEL_REGISTRY[ARCH].from_pretrained(
        str(checkpoint.parent), checkpoint.name, str(data), no_scale_embedding=value
    )
    assert (interface.models[0].encoder.embed_scale == 1) == (value in YES)


@pytest.mark.parametrize("key, value", WRONG[:4])
def test_wrong_overrides_of_a_checkpoint(checkpoint, data, key, value):
    for load in (
        lambda: checkpoint_utils.load_model_ensemble([str(checkpoint)], {"data": str(data), key: value}),
        lambda: ARCH_MODEL_REGISTRY[ARCH].from_pretrained(
            str(checkpoint.parent), checkpoint.name, str(data), **{key: value}
        ),
    ):
        with pytest.raises(UserError, match=key) as refusal:
            load()
        assert repr(value) in str(refusal.value)
        assert "train" not in str(refusal.value), "the remedy for a broken checkpoint"
