"""Workers that fairseq starts for several GPUs train on after SIGTERM has ended their parent.

PyTorch has the system send them SIGINT then, which a shell makes its background jobs ignore, and their
children, too. In all versions. Unnecessary once ``call_main`` ends the workers that it has spawned.
"""

import ctypes
import multiprocessing
import os
import signal
import sys

import torch

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def install() -> None:
    """In such a worker, ask the system for SIGTERM when the process that started it ends (on Linux)."""
    parent = multiprocessing.parent_process()
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if parent is None or not distributed or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent.pid:  # it has ended before
        os.kill(os.getpid(), signal.SIGTERM)
