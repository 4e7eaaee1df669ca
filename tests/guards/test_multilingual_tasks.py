"""Models of the multilingual tasks through each of fairseq's loading calls."""

import re
from types import SimpleNamespace

import pytest
import torch
from commands import here
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask
from untrained import make_checkpoint, make_data

import user_dir.models  # noqa: F401  installs the guards
from user_dir.errors import UserError

PAIRS = "--lang-pairs de-en,en-de"
TASKS = {
    "adaptively_sparse_transformer": ("translation_multi_simple_epoch", f"{PAIRS} --langs de,en"),
    "transformer": ("translation_multi_simple_epoch", f"{PAIRS} --langs de,en --decoder-langtok"),
    "multilingual_transformer": ("multilingual_translation", PAIRS),
}
SENTENCE = "▁word1 ▁word2"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    make_data(folder)
    for path in [*folder.glob("*.bin"), *folder.glob("*.idx")]:
        if path.name.count(".") == 1:  # of one language, in whose name the task looks for two
            path.unlink()
    return folder


@pytest.fixture(scope="module", params=TASKS)
def made(request, data, tmp_path_factory):
    """The architecture, its checkpoint, the task and its flags."""
    task, flags = TASKS[request.param]
    path = tmp_path_factory.mktemp("checkpoint") / "model.pt"
    make_checkpoint(path, request.param, task, data, False, flags)
    return request.param, path, task, flags


def test_loading(made, data):
    _, path, *_ = made
    saved = torch.load(path, weights_only=False)["model"]
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(data)})
    found = model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in saved.items() if "_float_" not in name)
    with pytest.raises(UserError, match="FOLDER"):
        checkpoint_utils.load_model_ensemble_and_task([str(path)])


def test_translating_from_python(made, data):
    arch, path, *_ = made
    pair = {"source_lang": "de", "target_lang": "en"}
    model = ARCH_MODEL_REGISTRY[arch].from_pretrained(str(path.parent), path.name, str(data), **pair)
    one = model.translate(SENTENCE, beam=2, max_len_b=5)
    assert isinstance(one, str) and model.translate([SENTENCE], beam=2, max_len_b=5) == [one]
    language, unknown = model.tgt_dict.index("__en__"), model.tgt_dict.unk()
    allowed = {model.tgt_dict.index("▁word1"), *({language} - {unknown})}
    ((best,),) = model.generate(
        [model.encode(SENTENCE)],  # in a list: otherwise fairseq drops the function
        beam=1,
        max_len_b=5,
        prefix_allowed_tokens_fn=lambda batch, tokens: list(allowed) if len(tokens) < 4 else [2],
    )
    assert set(best["tokens"].tolist()) <= {*allowed, 2}


def test_generating(made, data):
    _, path, task, flags = made
    words = ["--path", path, "--task", task, *flags.split(), "-s", "de", "-t", "en", "--beam", "2"]
    out = here("generate", data, *words, "--gen-subset", "valid", "--max-len-b", "5")
    assert len(re.findall(r"^H-\d", out, re.M)) == 3


def test_the_task_that_takes_our_models_is_named():
    task = MultilingualTranslationTask.__new__(MultilingualTranslationTask)
    with pytest.raises(SystemExit, match="translation_multi_simple_epoch"):
        task.build_model(SimpleNamespace(_name="adaptively_sparse_transformer"))
