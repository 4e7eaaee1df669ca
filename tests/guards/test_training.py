"""Settings, workers, optimizers, scores and losses of fairseq's trainings."""

import math
import threading
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from endless_batches import Batches
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    label_smoothed_nll_loss,
)
from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.data.iterators import BackgroundConsumer, BufferedIterator, CountingIterator, GroupedIterator
from fairseq.dataclass.configs import DistributedTrainingConfig, FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils
from fairseq.logging import progress_bar
from fairseq.optim.composite import CompositeOptimizerConfig, FairseqCompositeOptimizer
from fairseq.tasks.translation import TranslationTask
from helpers import MODEL_TOLERANCE, batch, build, dictionary, parse
from omegaconf import OmegaConf

from user_dir.guards import training
from user_dir.guards.training import end_prefetching, launched_workers
from user_dir.models import smoothed_loss
from user_dir.models.smoothed_loss import SmoothedLoss

# ----------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("flags", [[], ["--tpu"]])
def test_a_tpu_is_taken_if_it_is_asked_for(flags):
    words = ["data", "--arch", "transformer", "--bf16", *flags]
    parsed = options.parse_args_and_arch(options.get_training_parser(), input_args=words)
    assert (parsed.tpu, parsed.bf16) == (bool(flags), True)


def test_checkpoints_have_all_settings_of_a_model():
    """Also those that a config leaves to their defaults, which fairseq fills in where it builds the model."""
    settings = {"_name": "adaptively_sparse_transformer_tiny", "encoder_layers": 2, "dropout": "0.3"}
    cfg, seen = OmegaConf.create({"model": settings}), []
    inner = lambda self, cfg, task, model: seen.append(cfg.model)  # noqa: E731
    training.keep_whole_settings(inner, None, cfg, None, None)
    model = OmegaConf.to_container(seen[0], enum_to_str=True)
    assert (model["encoder_layers"], model["dropout"], model["decoder_layers"]) == (2, 0.3, 4)
    assert model["attention_normalizer"] == "entmax" and cfg.model is seen[0]


# ------------------------------------------------------------------------------------------ workers

TORCHRUN = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1"}


@pytest.fixture
def torchrun(monkeypatch):
    """The variables that torchrun gives the second worker of the second of two nodes with four workers."""
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("torchrun", "gpus")
def test_with_gpus_they_are_what_fairseq_infers():
    config = DistributedTrainingConfig(distributed_world_size=4, tpu=False)
    utils.infer_init_method(config)
    settings = launched_workers("pytorch_ddp", cpu=False)
    assert settings == {name: getattr(config, name) for name in settings}
    assert {"distributed_init_method", "distributed_rank", "distributed_world_size"} <= settings.keys()


@pytest.mark.usefixtures("torchrun")
@pytest.mark.parametrize("asked", ["pytorch_ddp", "c10d"])
@pytest.mark.parametrize("machine", ["gpus", "no_gpu"])
def test_on_a_cpu_they_are_for_a_cpu(request, machine, asked):
    request.getfixturevalue(machine)
    settings = launched_workers(asked, cpu=machine == "gpus")
    assert settings["ddp_backend"] == "legacy_ddp"
    assert settings["distributed_backend"] == "gloo"
    assert "ddp_backend" not in launched_workers("no_c10d", cpu=True)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("changed", [{"RANK": None}, {"WORLD_SIZE": "1"}])
def test_there_are_none_outside_torchrun_or_for_one_worker(torchrun, monkeypatch, changed):
    for name, value in changed.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    assert launched_workers("pytorch_ddp", cpu=False) == {}


def joined(flags: str = "", arch: str = "adaptively_sparse_transformer", model: bool = True) -> FairseqConfig:
    """The settings with which fairseq-train, or a command without a model of its own, begins its work."""
    configs = []
    cfg = convert_namespace_to_omegaconf(parse(f"{flags} --task translation --cpu", arch))
    if not model:
        cfg.model, cfg.distributed_training.distributed_world_size = None, 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "distributed_main", lambda device, main, cfg, kwargs: configs.append(cfg))
        utils.call_main(cfg, configs.append)
    return configs[0]


@pytest.mark.usefixtures("torchrun", "no_gpu")
def test_fairseq_train_takes_them_for_every_model():
    for arch in ("adaptively_sparse_transformer", "transformer"):
        cfg = joined(arch=arch)
        distributed = cfg.distributed_training
        assert (distributed.distributed_rank, distributed.distributed_world_size) == (5, 8)
        assert (distributed.distributed_init_method, distributed.distributed_no_spawn) == ("env://", True)
        assert (distributed.distributed_backend, distributed.ddp_backend) == ("gloo", "legacy_ddp")
        assert (distributed.device_id, cfg.checkpoint.load_checkpoint_on_all_dp_ranks) == (1, True)
    flags = "--distributed-init-method tcp://here:1234 --distributed-world-size 2 --distributed-no-spawn"
    distributed = joined(flags).distributed_training  # what the command line says comes first
    assert (distributed.distributed_rank, distributed.distributed_world_size) == (0, 2)
    assert joined(model=False).distributed_training.distributed_init_method is None


@pytest.mark.parametrize("room", [2, 1_000_000], ids=["waiting", "at work"])
def test_batches_are_prepared_no_longer_than_the_run_lasts(room):
    batches = BufferedIterator(room, Batches())
    next(batches)
    assert batches._consumer.is_alive()
    end_prefetching()
    assert not batches._consumer.is_alive()


def test_a_loop_that_is_left_ends_what_prepares_its_batches():
    """A validation within a training, whose own batches go on."""
    end_prefetching()  # of tests before, in this process

    def batches():
        return CountingIterator(BufferedIterator(2, Batches()))

    through = progress_bar.progress_bar(GroupedIterator(batches(), 2), log_format="simple")
    for _ in through:
        before = set(threading.enumerate())
        for number, _ in enumerate(progress_bar.progress_bar(batches(), log_format="none")):
            if number > 3:
                break
        assert before == set(threading.enumerate())
        break
    assert not any(isinstance(thread, BackgroundConsumer) for thread in threading.enumerate())
    assert len(through) == 500_000


# ------------------------------------------------------------------------------------------ updates


def test_gradients_that_are_nan_are_named():
    trainer = SimpleNamespace(get_num_updates=lambda: 6, get_model=lambda: None)

    def step(self, fails):
        try:
            raise FloatingPointError("gradients are Nan/Inf")
        except FloatingPointError:
            if fails:  # as fairseq does, looking for the module
                next(iter(()))
            raise

    for fails in (False, True):
        with pytest.raises(FloatingPointError, match="gradients of update 7 are NaN"):
            training.train_step(step, trainer, fails)


def test_a_model_is_told_of_an_update_when_it_is_made():
    told, trainer = [], SimpleNamespace(updates=3, get_num_updates=lambda: trainer.updates)
    model = SimpleNamespace(after_update=lambda updates: told.append(updates))
    trainer.get_model = lambda: model

    def step(self):
        told.append("made")
        self.updates += 1
        return {"loss": 1.0}

    assert training.train_step(step, trainer) == {"loss": 1.0}
    assert told == [3, "made", 4]


def optimizer(groups, of_params):
    """An optimizer with a rate for each of ``groups``, and a parameter with a gradient of 1 of each group."""
    params = []
    for group in of_params:
        params.append(torch.nn.Parameter(torch.ones(2)))
        params[-1].grad = torch.ones(2)
        if group:
            params[-1].param_group = group
    settings = {
        group: {
            "lr_float": rate,
            "optimizer": {"_name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "lr": [rate]},
            "lr_scheduler": {"_name": "fixed", "lr": [rate]},
        }
        for group, rate in groups.items()
    }
    config = OmegaConf.merge(OmegaConf.structured(CompositeOptimizerConfig), {"groups": settings})
    return params, FairseqCompositeOptimizer(config, params)


def test_groups_of_parameters_with_and_without_settings():
    params, built = optimizer({"bert": 0.1, "default": 0.5}, ["bert", "alpha", None])
    built.step()
    assert [parameter[0].item() for parameter in params] == pytest.approx([0.9, 0.5, 0.5])
    others, built = optimizer({"bert": 0.1, "alpha": 0.2, "default": 0.5}, ["bert", "alpha", None])
    built.step()
    assert [parameter[0].item() for parameter in others] == pytest.approx([0.9, 0.8, 0.5])
    assert params[0][0].item() == pytest.approx(0.9), "of another optimizer"


# --------------------------------------------------------------------------------------- validation

THAI, CHINESE, ENGLISH = "ฉันรักแมวดำ", "我喜欢黑色的小猫", "the dog sees a cat"


def validated(code: str, words: Dictionary, reference, hypothesis, text: str = "", **settings):
    """The BLEU of fairseq's translation task."""
    cfg = {"eval_bleu_remove_bpe": None, "eval_bleu_print_samples": False, "eval_tokenized_bleu": False}
    joined = SimpleNamespace(decode=lambda line: line if " " in text else line.replace(" ", ""))
    task = SimpleNamespace(
        tgt_dict=words,
        tokenizer=joined if text else None,
        cfg=SimpleNamespace(target_lang=code, **{**cfg, **settings}),
        inference_step=lambda *_, **__: [[{"tokens": hypothesis}]],
    )
    sample = {"target": reference[None], "net_input": {"src_tokens": reference[None]}}
    return TranslationTask._inference_with_bleu(task, SimpleNamespace(), sample, None)


def without_the_last(code: str, text: str, **settings):
    """BLEU of a translation that lacks the last symbol, a word or a character."""
    words, symbols = Dictionary(), text.split() if " " in text else list(text)
    for symbol in symbols:
        words.add_symbol(symbol)
    reference = words.encode_line(" ".join(symbols), add_if_not_exist=False).long()
    return validated(code, words, reference, torch.cat([reference[:-2], reference[-1:]]), text, **settings)


@pytest.mark.parametrize(("codes", "text"), [("th tha_Thai", THAI), ("zh zh_CN cmn yue", CHINESE)])
def test_one_character_less_costs_one_character(codes, text):
    for code in codes.split():
        score = without_the_last(code, text).score
        assert score == pytest.approx(100 * math.exp(1 - len(text) / (len(text) - 1))), code


def test_languages_with_spaces_and_tokens_are_scored_as_by_fairseq():
    stock = sacrebleu.corpus_bleu
    expected = stock(["the dog sees a"], [[ENGLISH]]).score
    for code in ("en", "deu_Latn", "xx"):
        assert without_the_last(code, ENGLISH).score == pytest.approx(expected)
    assert without_the_last("th", THAI, eval_tokenized_bleu=True).sys_len == 1
    assert sacrebleu.corpus_bleu is stock


def test_empty_translations_have_a_bleu():
    """fairseq logs none if no n-gram was translated, and could not choose the best checkpoint."""
    words = Dictionary()
    reference = words.encode_line("a b c", add_if_not_exist=True).long()
    bleu = validated("en", words, reference, reference[-1:])
    assert bleu.score == 0 and max(bleu.totals) > 0


def test_rdrop_leaves_the_batch_to_validation_by_bleu():
    task = SimpleNamespace(target_dictionary=dictionary())
    inputs = batch()
    sample = {"target": inputs.pop("target"), "net_input": {**inputs}, "ntokens": 18}
    RdropLabelSmoothedCrossEntropyCriterion(task, False, 0.1, rdrop_alpha=5)(build().float(), sample)
    assert sample["net_input"]["src_tokens"] is inputs["src_tokens"]


# ---------------------------------------------------------------------------------- label smoothing

FAIRSEQS_OWN = LabelSmoothedCrossEntropyCriterion.compute_loss.__wrapped__
PAD = dictionary().pad()


@pytest.fixture
def parts(monkeypatch):
    """Parts of three rows, the last of which is smaller, for the vocabularies of this module."""
    monkeypatch.setattr(smoothed_loss, "PART", 3 * 20 + 2)


def criterion(smoothing=0.1, **settings) -> LabelSmoothedCrossEntropyCriterion:
    task = SimpleNamespace(target_dictionary=dictionary())
    return LabelSmoothedCrossEntropyCriterion(task, False, smoothing, **settings)


def rows(dtype: torch.dtype):
    generator = torch.Generator().manual_seed(1)
    scores = (4 * torch.randn(10, 20, generator=generator)).to(dtype).requires_grad_()
    target = torch.randint(4, 20, (10, 1), generator=generator)
    target[[0, 4, 9]] = PAD
    return scores, target


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_model_has_fairseqs_loss_and_gradients(parts, smoothing):
    model, sample, results = build().float(), batch(), []
    inputs = {name: sample[name] for name in sample if name != "target"}
    for compute in (LabelSmoothedCrossEntropyCriterion.compute_loss, FAIRSEQS_OWN):
        model.zero_grad()
        loss, nll = compute(criterion(smoothing), model, model(**inputs), sample)
        loss.backward()
        results.append([loss, nll, *(parameter.grad for parameter in model.parameters())])
    assert results[0][0].grad_fn.name() == "SmoothedLossBackward"
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_scores_of_every_precision_have_fairseqs_gradient_under_a_scale(parts, dtype, smoothing):
    scores, target = rows(dtype)
    log_p = torch.log_softmax(scores, -1, dtype=torch.float32)
    of_fairseq = label_smoothed_nll_loss(log_p, target, smoothing, ignore_index=PAD)
    losses = SmoothedLoss.apply(scores, target, smoothing, PAD)
    torch.testing.assert_close(losses, tuple(of_fairseq))
    ours, theirs = (torch.autograd.grad(512 * values[0], scores)[0] for values in (losses, of_fairseq))
    torch.testing.assert_close(ours, theirs)
    assert not ours[[0, 4, 9]].any() and ours[1:4].all()


def test_the_gradient_is_that_of_the_loss(parts):
    scores, target = rows(torch.float64)
    assert torch.autograd.gradcheck(lambda z: SmoothedLoss.apply(z, target, 0.1, PAD)[0], scores)
    losses = SmoothedLoss.apply(scores, target, 0.1, PAD)
    expected = label_smoothed_nll_loss(scores.log_softmax(-1), target, 0.1, ignore_index=PAD)
    torch.testing.assert_close(losses, tuple(expected), **MODEL_TOLERANCE)
    loss, nll = SmoothedLoss.apply(scores, torch.full_like(target, PAD), 0.1, PAD)
    assert loss == nll == 0 and not torch.autograd.grad(loss, scores)[0].any()


@pytest.mark.parametrize(
    ("flags", "arch", "settings"),
    [
        ("", "transformer", {}),
        ("--latent-alignment", "adaptively_sparse_transformer", {}),
        ("", "adaptively_sparse_transformer", {"ignore_prefix_size": 1}),
    ],
)
def test_others_are_left_to_fairseq(parts, flags, arch, settings):
    model, sample = build(flags, arch).float(), batch()
    inputs = {name: sample[name] for name in sample if name != "target"}
    loss, _ = criterion(**settings).compute_loss(model, model(**inputs), sample)
    assert loss.grad_fn.name() != "SmoothedLossBackward"
