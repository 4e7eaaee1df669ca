"""Fixtures for all tests: a fixed seed, one thread, and the plugin registered with fairseq."""

import gc
import importlib
import logging
import os
import pkgutil
from concurrent.futures import ThreadPoolExecutor

import hypothesis
import pytest
import quick_hydra
import quick_triton
from forks import NIGHTLY, forks, import_loaded
from once import Once

KERNELS = (
    *("attention.cpu.kernels", "decoding.native.kernels", "entmax.cpu.kernels", "entmax.cpu.loss_kernels"),
    "latent.mixture.kernels",
)

# Wall-clock time says nothing on a busy machine.
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")


def pytest_configure(config):
    """Import fairseq and register the plugin with it, but not in the process that only starts others."""
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        return
    gc.disable()  # until all is imported and collected, of which nearly nothing is garbage
    # Set before fairseq.models.wav2vec makes all libraries log at DEBUG: only the first configuration counts.
    logging.basicConfig(level=logging.INFO)
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # Asking whether there is a GPU must not initialise CUDA, which forks could then not use.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    # Triton reads this at its first import: without a GPU, kernels run in its interpreter.
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    if "not nightly" not in config.option.markexpr:
        os.environ[NIGHTLY] = "1"
    # Tensors are small, so more threads would cost more than they gain.
    torch.set_num_threads(1)
    importlib.import_module("user_dir.tasks")
    quick_hydra.quicken()
    quick_triton.quicken()
    if hasattr(config, "workerinput"):  # it runs commands and other tests, which both need these
        import_loaded()
    forks()


def pytest_collection_modifyitems(items):
    """Files with slow tests come first, so that no worker ends long after the others."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish():
    """What is there before the first test is not searched for garbage again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """``once(name, fill)``: a folder that ``fill(folder)`` fills once per run, for all workers."""
    return Once(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session", autouse=True)
def _kernels(once):
    """Native kernels that are not in the user's cache are compiled by one worker, and all at once."""

    def load(_):
        with ThreadPoolExecutor() as pool:
            kernels = [pkgutil.resolve_name(f"user_dir.{name}") for name in KERNELS]
            list(pool.map(lambda module: module.available(), kernels))

    once("kernels", load)


@pytest.fixture(autouse=True)
def _seed():
    import torch

    torch.manual_seed(1)


@pytest.fixture(autouse=True)
def _loggers_at_work():
    """Undo what hydra and other tests do to logging: disabled loggers, a high level, all warnings off."""
    logging.disable(logging.NOTSET)
    logging.root.setLevel(logging.INFO)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith(("user_dir", "fairseq")) and isinstance(logger, logging.Logger):
            logger.disabled = False
    for name in ("fairseq", "user_dir"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def stock_in_full_precision(monkeypatch):
    """fairseq rounds attention weights to float32, whatever their dtype; an oracle must not."""
    import torch

    exact = lambda x, dim, onnx_trace=False: torch.softmax(x, dim)  # noqa: E731
    monkeypatch.setattr("fairseq.utils.softmax", exact)
