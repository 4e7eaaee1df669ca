"""What importing the package loads, and that imports work in any order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from commands import checked, forks

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


def test_fairseq_finds_the_plugin_by_its_folder(tmp_path):
    program = """
import sys
from fairseq import options
sys.argv = ["fairseq-train", "data", "--user-dir", "user_dir", "--arch", "adaptively_sparse_transformer_tiny"]
args = options.parse_args_and_arch(options.get_training_parser())
from fairseq import criterions, tasks
assert "translation_with_bpe_dropout" in tasks.TASK_REGISTRY
assert {"entmax_loss", "post_editing_loss"} <= set(criterions.CRITERION_REGISTRY)
"""
    with_libraries(tmp_path, program)
