"""fairseq's commands and our scripts, run in processes of their own; fairseq's also within this one."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
NO_NETWORK = Path(__file__).with_name("no_network")

TINY = ["--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64", "--encoder-layers", "2"]
TINY += ["--decoder-layers", "2", "--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
TRAINING = ["--optimizer", "adam", "--lr", "0.002", "--criterion", "label_smoothed_cross_entropy"]
TRAINING += ["--label-smoothing", "0.1", "--dropout", "0.1", "--share-all-embeddings", "--max-tokens", "1000"]
TRAINING += ["--seed", "3", "--no-progress-bar", "--log-interval", "2", "--num-workers", "0"]
PLUGIN = ["--user-dir", str(ROOT / "user_dir")]


def run(*command, check=True, stdin=None, cwd=ROOT, timeout=600) -> subprocess.CompletedProcess:
    """Run a command on one thread, off the network; with ``check``, show what it said where it fails."""
    path = os.pathsep.join(filter(None, [str(NO_NETWORK), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        timeout=timeout,
    )
    if check:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done


def fairseq(command: str, *flags, **options) -> subprocess.CompletedProcess:
    """Run ``fairseq-COMMAND``."""
    return run(sys.executable, "-m", f"fairseq_cli.{command}", *flags, **options)


def here(command: str, *flags, stdin: str = "") -> str:
    """What ``fairseq-COMMAND`` prints, run in this process: the start of one of its own takes seconds."""
    words = [f"fairseq-{command}", *(str(flag) for flag in flags)]
    output = io.StringIO()
    with contextlib.ExitStack() as given:
        given.enter_context(mock.patch.object(sys, "argv", words))
        given.enter_context(mock.patch.object(sys, "stdin", io.StringIO(stdin)))
        given.enter_context(contextlib.redirect_stdout(output))
        importlib.import_module(f"fairseq_cli.{command}").cli_main()
    return output.getvalue()


def script(name: str, *flags, **options) -> subprocess.CompletedProcess:
    """Run ``scripts/NAME.py``."""
    return run(sys.executable, ROOT / "scripts" / f"{name}.py", *flags, **options)


def train(corpus: Path, save_dir: Path, *flags, arch="adaptively_sparse_transformer", **options):
    """Train a tiny model by ``fairseq-train``."""
    return fairseq("train", *train_flags(corpus, save_dir, *flags, arch=arch), **options)


def train_flags(corpus: Path, save_dir: Path, *flags, arch="adaptively_sparse_transformer") -> list[str]:
    """What ``fairseq-train`` is given to train a tiny model."""
    data = [corpus / "bin", "--source-lang", "de", "--target-lang", "en", "--save-dir", save_dir]
    return [str(flag) for flag in (*data, *PLUGIN, "--arch", arch, *TINY, *TRAINING, *flags)]


def refused(done: subprocess.CompletedProcess, *words: str) -> None:
    """The command ended with one clear sentence that holds ``words``, and no traceback."""
    assert done.returncode != 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    last = done.stderr.strip().split("\n")[-1]
    assert "error: " in last, done.stderr
    for word in words:
        assert word in last, last


def read_alpha_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
