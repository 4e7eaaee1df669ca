"""fairseq's commands and our scripts, run as forks; fairseq's also in the process of the tests."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import torch
from forks import ROOT, environment, forks

from user_dir.checkpoints import load_checkpoint, save_checkpoint
from user_dir.config import training_arguments

TINY = ["--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64", "--encoder-layers", "2"]
TINY += ["--decoder-layers", "2", "--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
TRAINING = ["--optimizer", "adam", "--lr", "0.002", "--criterion", "label_smoothed_cross_entropy"]
TRAINING += ["--label-smoothing", "0.1", "--dropout", "0.1", "--share-all-embeddings", "--max-tokens", "1000"]
TRAINING += ["--seed", "3", "--no-progress-bar", "--log-interval", "2", "--num-workers", "0"]
PLUGIN = ["--user-dir", str(ROOT / "user_dir")]


def run(*command, check=True, cwd=ROOT, timeout=600) -> subprocess.CompletedProcess:
    """Run a command on one thread without network; with ``check``, show its output if it fails."""
    words = [str(word) for word in command]
    options = {"cwd": cwd, "env": environment(), "timeout": timeout}
    return checked(subprocess.run(words, capture_output=True, text=True, **options), check)


def fairseq(command: str, *flags, check=True, **options) -> subprocess.CompletedProcess:
    """Run ``fairseq-COMMAND``; ``anew`` as in :mod:`forks`."""
    return checked(forks().run("-m", f"fairseq_cli.{command}", *flags, **options), check)


def here(command: str, *flags, stdin: str = "") -> str:
    """The output of ``fairseq-COMMAND``, run in this process, because starting another one takes seconds."""
    words = [f"fairseq-{command}", *map(str, flags)]
    if command != "preprocess":  # otherwise it waits 5 seconds for forked workers
        words += ["--num-workers", "0"]
    output = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", words))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO(stdin)))
        stack.enter_context(contextlib.redirect_stdout(output))
        logger = logging.getLogger(f"fairseq_cli.{command}")
        stack.enter_context(mock.patch.object(logger, "handlers", []))  # the command's log ends with it
        importlib.import_module(f"fairseq_cli.{command}").cli_main()
    return output.getvalue()


def script(name: str, *flags, check=True, **options) -> subprocess.CompletedProcess:
    """Run ``scripts/NAME.py``; ``anew`` as in :mod:`forks`."""
    return checked(forks().run(ROOT / "scripts" / f"{name}.py", *flags, **options), check)


def train_with(config, *changes, root: Path = ROOT, **options) -> subprocess.CompletedProcess:
    """Train with a config like ``scripts/train.py``, which would become another process and start anew."""
    arguments = training_arguments(Path(config), [str(change) for change in changes], root)
    return fairseq("hydra_train", *arguments, cwd=root, **options)


def checked(done: subprocess.CompletedProcess, check: bool) -> subprocess.CompletedProcess:
    """Check a finished command; with ``check``, it must not have failed."""
    assert done.returncode == 0 or not check, done.stdout[-3000:] + done.stderr[-5000:]
    return done


def train(corpus: Path, save_dir: Path, *flags, arch="adaptively_sparse_transformer", **options):
    """Train a tiny model with ``fairseq-train``."""
    return fairseq("train", *train_flags(corpus, save_dir, *flags, arch=arch), **options)


def train_flags(corpus: Path, save_dir: Path, *flags, arch="adaptively_sparse_transformer") -> list[str]:
    """The arguments of ``fairseq-train`` for a tiny model."""
    data = [corpus / "bin", "--source-lang", "de", "--target-lang", "en", "--save-dir", save_dir]
    return [str(flag) for flag in (*data, *PLUGIN, "--arch", arch, *TINY, *TRAINING, *flags)]


def refused(done: subprocess.CompletedProcess, *words: str) -> None:
    """Assert that the command ended with one error message containing ``words``, without a traceback."""
    assert done.returncode != 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    last = done.stderr.strip().split("\n")[-1]
    assert "error: " in last, done.stderr
    for word in words:
        assert word in last, last


def prepared(folder: Path, files: dict[str, list[str]], **settings) -> Path:
    """A corpus ``mine`` below a folder, from files by name, as a list of lines each, and its settings."""
    raw, mine = folder / "raw", folder / "data" / "mine"
    raw.mkdir(parents=True)
    mine.mkdir(parents=True)
    for name, text in files.items():
        (raw / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    splits = {split: f"{split}.{{language}}" for split in ("train", "valid", "exam")}
    whole = {"title": "mine", "languages": ["de", "en"], "splits": splits, **settings}
    (mine / "corpus.yaml").write_text(json.dumps(whole))  # JSON is YAML
    script("prepare", "mine", "--raw", raw, "--data", mine.parent, "--workers", "1")
    return mine


def of(checkpoint, corpus: Path) -> list:
    """What a script is given to use a checkpoint on a prepared corpus."""
    return ["--path", checkpoint, "--corpus", corpus.name, "--data", corpus.parent]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def randomised(checkpoint: Path, path: Path, seed: int, scale: float) -> Path:
    """Write a checkpoint with random weights, so that every sentence has a translation of its own."""
    state, random = load_checkpoint(checkpoint), torch.Generator().manual_seed(seed)
    for name, values in state["model"].items():
        if values.is_floating_point():
            state["model"][name] = scale * torch.randn(values.shape, generator=random)
    save_checkpoint({**state, "last_optimizer_state": None}, path)
    return path


def read_alpha_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in lines(path)]


def page_data(page: Path) -> dict:
    """What a head report shows of its first model."""
    return json.loads(re.search(r'id="data">(.*?)</script', page.read_text("utf-8"), re.S)[1])["models"][0]


def translated(output: str) -> dict[int, str]:
    """The first detokenised hypothesis of each sentence in the output of fairseq-generate or -interactive."""
    hypotheses = re.findall(r"^D-(\d+)\t\S+\t(.*)$", output, flags=re.M)
    return {int(number): text for number, text in reversed(hypotheses)}


def evaluated_as_by_fairseq(folder: Path, corpus: Path, test_set: str, *flags) -> dict:
    """The scores of an evaluation of a first test set, whose translations are those of fairseq-generate."""
    scores = json.loads((folder / f"{test_set}.json").read_text())
    source, target = scores["direction"].split("-")
    words = [corpus / "bin", *PLUGIN, "--path", scores["checkpoint"], "--remove-bpe", "sentencepiece"]
    words += ["--source-lang", source, "--target-lang", target, "--max-tokens", 4096]
    words += ["--beam", scores["beam"], "--max-len-b", scores["max_len_b"], *flags]
    overrides = {name: scores[name] for name in ("new_piece_penalty", "int8") if name in scores}
    words += ["--model-overrides", overrides, *(["--cpu"] if "int8" in scores else [])]
    output = fairseq("generate", *words).stdout
    translations, tokens = translated(output), folder / f"{test_set}.tok.{target}"
    written = lines(tokens if tokens.exists() else folder / f"{test_set}.{target}")
    assert [translations.get(number, "") for number in range(len(written))] == written
    assert len(translations) == scores["sentences"]
    pieces = re.findall(r"^P-(\d+)\t(.*)$", output, flags=re.M)
    cut = {int(number) + 1 for number, of_it in pieces if len(of_it.split()) > scores["max_len_b"]}
    assert sorted(cut) == scores["unfinished_lines"]
    return scores
