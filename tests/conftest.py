"""Fixtures for all tests: a fixed seed, one thread, and the plugin registered with fairseq."""

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Set before fairseq.models.wav2vec makes all libraries log at DEBUG: only the first configuration counts.
logging.basicConfig(level=logging.INFO)

import fairseq.utils  # noqa: E402
import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from once import Once  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# Triton reads this at its first import: without a GPU, kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import user_dir.models  # noqa: E402, F401  registers the model and its architectures
from user_dir.attention import cpu_attention as attention_kernel  # noqa: E402
from user_dir.decoding import cpu_steps as decoding_kernel  # noqa: E402
from user_dir.entmax import cpu as entmax_kernel  # noqa: E402
from user_dir.entmax import loss_cpu as loss_kernel  # noqa: E402

# Tensors are small, so more threads would cost more than they gain.
torch.set_num_threads(1)

# Wall-clock time says nothing on a busy machine.
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """``once(name, fill)``: a folder that ``fill(folder)`` fills once per run, for all workers."""
    return Once(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session", autouse=True)
def _kernels(once):
    """Native kernels that are not in the user's cache are compiled by one worker, and all at once."""

    def load(_):
        with ThreadPoolExecutor() as pool:
            modules = (attention_kernel, decoding_kernel, entmax_kernel, loss_kernel)
            list(pool.map(lambda module: module.kernel(), modules))

    once("kernels", load)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


@pytest.fixture(autouse=True)
def _loggers_at_work():
    """Undo what hydra and other tests do to logging: disabled loggers, a high level, all warnings off."""
    logging.disable(logging.NOTSET)
    logging.root.setLevel(logging.INFO)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        ours = name.split(".")[0] in ("user_dir", "fairseq", "fairseq_cli")
        if ours and isinstance(logger, logging.Logger):
            logger.disabled = False
    logging.getLogger("fairseq").setLevel(logging.NOTSET)


@pytest.fixture
def stock_in_full_precision(monkeypatch):
    """fairseq rounds attention weights to float32, whatever their dtype; an oracle must not."""
    monkeypatch.setattr(fairseq.utils, "softmax", lambda x, dim, onnx_trace=False: torch.softmax(x, dim))
