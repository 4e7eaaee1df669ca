"""Several workers cannot resume a training, and without GPUs they do not find each other.

By itself fairseq looks at torchrun's variables only if it counts several GPUs, and lets worker 0 read a
checkpoint and hand it to the others in a pickle that PyTorch 2.6 and later refuse. Unnecessary once fairseq
takes world size and rank from torchrun's variables as they are, and broadcasts plain data.
"""

from __future__ import annotations

import functools
import os

import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils

READ_BY_EACH = "load_checkpoint_on_all_dp_ranks"


def launched_workers(ddp_backend: str, cpu: bool) -> dict[str, object]:
    """Settings of fairseq's ``distributed_training`` that make one training of what ``torchrun`` started.

    fairseq divides by the number of GPUs: where there is none, each process would train a model of its own
    over the checkpoints of the rest.

    Args:
        ddp_backend: the one asked for, fairseq's default included.
        cpu: whether a CPU is asked for even if there is a GPU.

    Returns:
        The settings by name; none outside torchrun, and where it started one process.
    """
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")
    if not all(name in os.environ for name in names) or os.environ["WORLD_SIZE"] == "1":
        return {}
    settings = {
        "distributed_init_method": "env://",
        "distributed_world_size": int(os.environ["WORLD_SIZE"]),
        "distributed_rank": int(os.environ["RANK"]),
        "device_id": int(os.environ["LOCAL_RANK"]),
        "distributed_no_spawn": True,
    }
    if cpu or not torch.cuda.is_available():
        settings["distributed_backend"] = "gloo"  # NCCL is for GPUs
        if ddp_backend in ("c10d", "pytorch_ddp"):
            # fairseq names a GPU to it, which torch refuses for a model on a CPU. The gradients are the same.
            settings["ddp_backend"] = "legacy_ddp"
    return settings


def join_workers(cfg: FairseqConfig) -> None:
    """Fill the settings in for a training by ``fairseq-train``, in place."""
    cfg.checkpoint[READ_BY_EACH] = True
    distributed = cfg.distributed_training
    if distributed.distributed_init_method is None:
        for name, value in launched_workers(distributed.ddp_backend, cfg.common.cpu).items():
            distributed[name] = value


def install() -> None:
    """Have fairseq's commands that train join the workers that ``torchrun`` started."""
    call = utils.call_main

    @functools.wraps(call)
    def call_main(cfg: FairseqConfig, main, **kwargs):
        if getattr(cfg, "model", None) is not None:  # others, such as fairseq-validate, are given none
            join_workers(cfg)
        return call(cfg, main, **kwargs)

    utils.call_main = call_main
