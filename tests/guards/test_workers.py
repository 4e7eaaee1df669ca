"""The settings for several workers, held against what fairseq itself finds out where there are GPUs."""

import pytest
import torch
from fairseq.dataclass.configs import DistributedTrainingConfig, FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils
from fairseq.distributed.utils import infer_init_method
from helpers import parse

from user_dir.config import worker_overrides
from user_dir.guards.workers import launched_workers

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


def training_config(world_size: int) -> DistributedTrainingConfig:
    return DistributedTrainingConfig(distributed_world_size=world_size, tpu=False)


@pytest.mark.usefixtures("torchrun", "gpus")
def test_with_gpus_they_are_what_fairseq_infers():
    config = training_config(4)
    infer_init_method(config)
    settings = launched_workers("pytorch_ddp", cpu=False)
    assert settings == {name: getattr(config, name) for name in settings}
    assert {"distributed_init_method", "distributed_rank", "distributed_world_size"} <= settings.keys()


@pytest.mark.nightly
@pytest.mark.usefixtures("torchrun", "no_gpu")
def test_without_a_gpu_fairseq_cannot_infer_them():
    """If this fails, ``launched_workers`` can go."""
    with pytest.raises(ZeroDivisionError):
        infer_init_method(training_config(8))
    alone = training_config(1)
    infer_init_method(alone)
    assert alone.distributed_init_method is None


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
@pytest.mark.parametrize("changed", [{"RANK": None}, {"WORLD_SIZE": None}, {"WORLD_SIZE": "1"}])
def test_there_are_none_outside_torchrun_or_for_one_worker(torchrun, monkeypatch, changed):
    for name, value in changed.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    assert launched_workers("pytorch_ddp", cpu=False) == {}


def joined(flags: str = "", arch: str = "adaptively_sparse_transformer") -> FairseqConfig:
    """The settings with which fairseq-train begins its work."""
    found = []
    cfg = convert_namespace_to_omegaconf(parse(f"{flags} --task translation --cpu", arch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "distributed_main", lambda device, main, cfg, kwargs: found.append(cfg))
        utils.call_main(cfg, found.append)
    return found[0]


@pytest.mark.usefixtures("torchrun", "no_gpu")
def test_fairseq_train_takes_them_for_every_model():
    for arch in ("adaptively_sparse_transformer", "transformer"):
        cfg = joined(arch=arch)
        distributed = cfg.distributed_training
        assert (distributed.distributed_rank, distributed.distributed_world_size) == (5, 8)
        assert (distributed.distributed_init_method, distributed.distributed_no_spawn) == ("env://", True)
        assert (distributed.distributed_backend, distributed.ddp_backend) == ("gloo", "legacy_ddp")
        assert (distributed.device_id, cfg.checkpoint.load_checkpoint_on_all_dp_ranks) == (1, True)


@pytest.mark.usefixtures("torchrun", "no_gpu")
def test_what_the_command_line_says_comes_first():
    flags = "--distributed-init-method tcp://here:1234 --distributed-world-size 2 --distributed-no-spawn"
    distributed = joined(flags).distributed_training
    assert (distributed.distributed_rank, distributed.distributed_world_size) == (0, 2)


@pytest.mark.usefixtures("torchrun", "no_gpu")
def test_commands_without_a_model_of_their_own_stay_alone():
    """fairseq-validate, for instance, takes its model from a checkpoint."""
    cfg = convert_namespace_to_omegaconf(parse("--task translation --cpu"))
    cfg.model = None
    cfg.distributed_training.distributed_world_size = 1
    seen = []
    utils.call_main(cfg, seen.append)
    assert seen[0].distributed_training.distributed_init_method is None


def test_without_torchrun_flags_stay(monkeypatch):
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    cfg = joined()
    assert cfg.distributed_training.distributed_init_method is None
    assert cfg.checkpoint.load_checkpoint_on_all_dp_ranks


@pytest.mark.usefixtures("torchrun", "no_gpu")
def test_configs_take_them():
    overrides = worker_overrides({"task": {}})
    assert "++checkpoint.load_checkpoint_on_all_dp_ranks=true" in overrides
    assert "++distributed_training.distributed_init_method='env://'" in overrides
    assert "++distributed_training.ddp_backend='legacy_ddp'" in overrides
    given = {"distributed_training": {"distributed_init_method": "tcp://here:1234"}}
    assert worker_overrides(given) == ["++checkpoint.load_checkpoint_on_all_dp_ranks=true"]
