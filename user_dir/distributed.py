"""Several workers: the settings that fairseq needs for them and does not find by itself."""

from __future__ import annotations

import os

import torch

# fairseq lets worker 0 read a checkpoint and hand it to the others in a pickle that torch 2.6 and later
# refuse (it holds more than plain data): going on from a checkpoint would end every run of several workers.
READ_BY_EACH = "load_checkpoint_on_all_dp_ranks"


def launched_workers(ddp_backend: str, cpu: bool) -> dict[str, object]:
    """Settings of fairseq's ``distributed_training`` that make one training of what ``torchrun`` started.

    By itself fairseq looks at torchrun's variables only if it counts several GPUs, and divides by their
    number: where there is none, each process would train a model of its own over the checkpoints of the rest.

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


def join_workers(args) -> None:
    """The same for the flags of ``fairseq-train``, in place; flags of a model alone stay as they are."""
    if getattr(args, READ_BY_EACH, None) is None:
        return
    setattr(args, READ_BY_EACH, True)
    if args.distributed_init_method is None:
        for name, value in launched_workers(args.ddp_backend, args.cpu).items():
            setattr(args, name, value)
