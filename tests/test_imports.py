"""What importing the package loads, and that imports work in any order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import checked, forks

import user_dir

ROOT = Path(__file__).resolve().parents[1]

HEAVY = ("fairseq", "hydra", "omegaconf", "sacrebleu", "tqdm", "triton", "matplotlib", "yaml")


def run(program: str) -> str:
    """The output of a program in a new interpreter at the repository's root."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    return checked(subprocess.run(command, cwd=ROOT, capture_output=True, text=True), True).stdout


def with_libraries(folder: Path, program: str) -> None:
    """Run a program in a process that has imported the libraries that fairseq needs, but not fairseq."""
    path = folder / "program.py"
    path.write_text(
        f"import sys\nassert 'fairseq' not in sys.modules\nsys.path.insert(0, {str(ROOT)!r})\n{program}"
    )
    checked(forks().run(path, anew=True), True)


def test_the_mathematics_imports_torch_only():
    """fairseq and its dependencies are not loaded; logging and warnings are unchanged."""
    program = f"""
import logging, sys, time, warnings
import torch
before = logging.root.level, list(logging.root.handlers), list(warnings.filters), set(sys.modules)
begin = time.process_time()
import user_dir.entmax, user_dir.attention, user_dir.latent
print(time.process_time() - begin)
assert (logging.root.level, logging.root.handlers, warnings.filters) == before[:3]
found = {{name.split(".")[0] for name in set(sys.modules) - before[3]}} & set({HEAVY})
assert not found, found
assert len(set(sys.modules) - before[3]) < 60, sorted(set(sys.modules) - before[3])
weights = user_dir.entmax.entmax(torch.tensor([1.0, 0.0, -3.0]), 1.5)
assert "fairseq" not in sys.modules
"""
    print(f"{float(run(program)):.3f} s beyond torch")  # shown by `pytest -s`: at most 0.3 on an idle core


COMMAND = """
import sys
from fairseq import options
sys.argv = ["fairseq-train", "data", "--user-dir", {folder!r}, "--arch", "adaptively_sparse_transformer_tiny"]
args = options.parse_args_and_arch(options.get_training_parser())
from fairseq import checkpoint_utils
assert args.encoder_layers == 4
assert type(checkpoint_utils.torch).__name__ == "_TorchThatChecks"
"""


@pytest.mark.parametrize("first", ["import user_dir.entmax", "import fairseq.models, user_dir.attention"])
def test_the_plugin_loads_after_any_other_import(first, tmp_path):
    with_libraries(tmp_path, f"{first}\n{COMMAND.format(folder='user_dir')}")


def test_both_names_of_the_package_in_one_process(tmp_path):
    """The installed package is called ``adaptively_sparse``; model and guards are registered only once."""
    (tmp_path / "adaptively_sparse").symlink_to(ROOT / "user_dir")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import adaptively_sparse.models
{COMMAND.format(folder="user_dir")}
import adaptively_sparse.modules, user_dir.models, user_dir.modules
model = user_dir.models.AdaptivelySparseTransformerModel
assert adaptively_sparse.models.AdaptivelySparseTransformerModel is model
assert adaptively_sparse.modules.EntmaxMultiheadAttention is user_dir.modules.EntmaxMultiheadAttention
from fairseq.models import MODEL_REGISTRY
assert MODEL_REGISTRY["adaptively_sparse_transformer"] is model
guards = checkpoint_utils.load_checkpoint_to_cpu
names = []
while hasattr(guards, "__wrapped__"):
    names.append(guards.guard)
    guards = guards.__wrapped__
assert sorted(set(names)) == sorted(names) and len(names) > 1, names
assert all(name.startswith("adaptively_sparse.guards.") for name in names), names
assert guards.__module__ == "fairseq.checkpoint_utils"
"""
    with_libraries(tmp_path, program)


def test_a_package_of_the_same_name_elsewhere_is_not_this_one(tmp_path):
    """fairseq must refuse the folder: paths are compared, not names."""
    (tmp_path / "user_dir").mkdir()
    assert str(ROOT / "user_dir") in user_dir.__path__
    assert str(tmp_path / "user_dir") not in user_dir.__path__
