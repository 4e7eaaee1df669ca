"""Distributed training cannot resume, and without GPUs the workers do not find each other.

fairseq reads torchrun's variables only if it counts several GPUs, and has worker 0 read a checkpoint and
broadcast it as a pickle, which PyTorch 2.6 and later refuse. Unnecessary once fairseq takes world size and
rank from torchrun's variables and broadcasts plain data.
"""

import os

import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils

from .installing import around

READ_BY_EACH = "load_checkpoint_on_all_dp_ranks"


def launched_workers(ddp_backend: str, cpu: bool) -> dict[str, object]:
    """The ``distributed_training`` settings that join the workers started by ``torchrun``.

    fairseq divides by the number of GPUs: without GPUs, each process would train its own model and overwrite
    the checkpoints of the others.

    Args:
        ddp_backend: the configured backend, including fairseq's default.
        cpu: whether a CPU is requested even if there is a GPU.

    Returns:
        The settings by name; empty outside torchrun, or if it started a single process.
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
            # fairseq would name a GPU, which torch rejects for a model on a CPU. Gradients are the same.
            settings["ddp_backend"] = "legacy_ddp"
    return settings


@around(utils, "call_main")
def call_main(call, cfg: FairseqConfig, main, **kwargs):
    """Let training commands join the workers; others, such as fairseq-validate, have no model."""
    if getattr(cfg, "model", None) is not None:
        cfg.checkpoint[READ_BY_EACH] = True
        distributed = cfg.distributed_training
        if distributed.distributed_init_method is None:
            for name, value in launched_workers(distributed.ddp_backend, cfg.common.cpu).items():
                distributed[name] = value
    return call(cfg, main, **kwargs)
