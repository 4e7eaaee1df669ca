"""Each of fairseq's calls that load a model works with each of ours, and with fairseq's own."""

import itertools
import re

import pytest
import torch
from commands import here
from fairseq import checkpoint_utils
from fairseq.logging.progress_bar import SimpleProgressBar
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from untrained import make_checkpoint, make_data

OURS = [arch for arch in ARCH_MODEL_NAME_REGISTRY if arch.startswith("adaptively_sparse")]
LANGUAGE_MODELS = [arch for arch in OURS if "transformer_lm" in arch] + ["transformer_lm"]
MASKED = [arch for arch in OURS if "masked_lm" in arch]
TRANSLATORS = [arch for arch in OURS if arch not in LANGUAGE_MODELS + MASKED] + ["transformer"]
SENTENCE = "▁word1 ▁[SEP] ▁word2"
SHORT = {"beam": 2, "max_len_b": 8}  # untrained models do not end by themselves
OFTEN = {  # one per kind of model; the others differ in their default sizes, and are for the nightly tests
    *("adaptively_sparse_transformer", "adaptively_sparse_post_editor", "transformer"),
    *("adaptively_sparse_transformer_lm", "transformer_lm"),
    "adaptively_sparse_masked_lm",
}


def cases(architectures: list[str], often: str) -> list:
    """All but ``often`` by night."""
    return [pytest.param(arch, marks=[] if arch == often else pytest.mark.nightly) for arch in architectures]


def each_way(architectures: list[str]) -> list:
    """With settings by flags, and by hydra, by day for one model."""
    often = {*((arch, False) for arch in OFTEN), ("adaptively_sparse_transformer", True)}
    return [
        pytest.param(*case, marks=[] if case in often else pytest.mark.nightly, id="-".join(map(str, case)))
        for case in itertools.product(architectures, (False, True))
    ]


def task_of(arch: str) -> str:
    if arch in MASKED:
        return "masked_lm"
    return "language_modeling" if arch in LANGUAGE_MODELS else "translation"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    make_data(folder)
    return folder


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    """``made(arch, by_hydra)``: a checkpoint, written once."""
    folder, known = tmp_path_factory.mktemp("checkpoints"), {}

    def make(arch, by_hydra=False):
        key = f"{arch}-{by_hydra}.pt"
        if key not in known:
            known[key] = folder / key
            make_checkpoint(known[key], arch, task_of(arch), data, by_hydra)
        return known[key]

    return make


def loaded(arch, checkpoint, data):
    """The interface of ``from_pretrained``."""
    return ARCH_MODEL_REGISTRY[arch].from_pretrained(str(checkpoint.parent), checkpoint.name, str(data))


@pytest.fixture
def validated(data, monkeypatch):
    """``validated(path, task, …)``: the loss that ``fairseq-validate`` reports."""
    reports = []
    monkeypatch.setattr(SimpleProgressBar, "print", lambda self, stats, **where: reports.append(stats))

    def validate(path, task, *flags):
        words = ["--path", path, "--task", task, "--valid-subset", "valid", "--max-tokens", "99"]
        here("validate", data, *words, "--no-progress-bar", *flags)
        return float(reports[-1]["loss"])

    return validate


@pytest.mark.parametrize(("arch", "by_hydra"), each_way(TRANSLATORS + LANGUAGE_MODELS + MASKED))
def test_every_model_is_loaded_with_its_parameters(arch, by_hydra, made, data):
    path = made(arch, by_hydra)
    saved = torch.load(path, weights_only=False)["model"]
    overrides = {"data": str(data)}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    (same,), _ = checkpoint_utils.load_model_ensemble([str(path)], overrides)
    for state in (model.state_dict(), same.state_dict()):
        assert all(
            torch.equal(state[name], value) for name, value in saved.items() if "_float_tensor" not in name
        )
    task.load_dataset("valid")
    assert len(task.dataset("valid")) > 0


@pytest.mark.parametrize(("arch", "by_hydra"), each_way(TRANSLATORS))
def test_translators_translate(arch, by_hydra, made, data):
    model = loaded(arch, made(arch, by_hydra), data)
    translation, many = model.translate(SENTENCE, **SHORT), model.translate([SENTENCE, SENTENCE], **SHORT)
    assert isinstance(translation, str) and many == [translation, translation]
    assert model.sample([SENTENCE], **SHORT) == [translation]
    assert model.decode(model.encode(SENTENCE)) == SENTENCE
    assert len(model.generate(model.encode(SENTENCE), **SHORT)) == 2


@pytest.mark.parametrize(("arch", "by_hydra"), each_way(LANGUAGE_MODELS))
def test_language_models_continue_and_score(arch, by_hydra, made, data):
    model = loaded(arch, made(arch, by_hydra), data)
    assert model.sample("▁word1", beam=2, max_len_b=6).startswith("▁word1")
    words = model.encode(SENTENCE)[:-1]
    prefix = torch.cat([torch.tensor([model.tgt_dict.eos()]), words[:-1]])  # what each word is predicted from
    output = model.models[0](prefix[None])
    log_p = model.models[0].get_normalized_probs(output, log_probs=True)[0]
    scores = model.score(SENTENCE)["positional_scores"]
    assert torch.allclose(scores, log_p.gather(1, words[:, None]).squeeze(1), atol=1e-5)
    assert torch.equal(model.score([SENTENCE])[0]["positional_scores"], scores)
    assert model.decode(model.encode(SENTENCE)) == SENTENCE


@pytest.mark.parametrize("arch", cases(TRANSLATORS, "adaptively_sparse_post_editor"))
def test_commands_of_translators(arch, made, data, validated):
    path = made(arch)
    flags = ["--path", path, "--beam", "2", "--max-len-b", "8", "--source-lang", "de", "--target-lang", "en"]
    out = here("generate", data, *flags)
    assert len(re.findall(r"^H-\d", out, re.M)) == 3 and "BLEU4" in out
    assert re.findall(r"^H-0\t", here("interactive", data, *flags, stdin=f"{SENTENCE}\n"), re.M)
    assert 0 < validated(path, "translation") < 100


@pytest.mark.parametrize("arch", cases(LANGUAGE_MODELS, "adaptively_sparse_transformer_lm"))
def test_commands_of_language_models(arch, made, data, caplog):
    path, sentences = made(arch), ["--sample-break-mode", "eos", "--tokens-per-sample", "64"]
    here("eval_lm", data, "--path", path, "--gen-subset", "valid", *sentences)
    assert 0 < float(re.search(r"Loss \(base 2\): ([\d.]+)", caplog.text)[1]) < 100
    beside = ["--path", made("adaptively_sparse_transformer"), "--lm-path", path, "--lm-weight", "0.1"]
    beside += ["--max-len-b", "8", "--source-lang", "de", "--target-lang", "en"]
    assert "H-0" in here("generate", data, *beside)


@pytest.mark.parametrize("arch", cases(MASKED, "adaptively_sparse_masked_lm"))
def test_commands_of_masked_language_models(arch, made, validated):
    sentences = ["--sample-break-mode", "eos", "--tokens-per-sample", "40"]
    assert 0 < validated(made(arch), "masked_lm", *sentences) < 100
