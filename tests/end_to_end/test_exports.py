"""Exported models, used without fairseq and this package, translate as translate.py does."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from commands import ROOT, lines, of, script
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from forks import environment

from user_dir.checkpoints import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.slow
OURS = ("fairseq", "user_dir", "adaptively_sparse")

# Runs a program in which some modules cannot be imported.
WITHOUT = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name, name=name)
absent, sys.argv = sys.argv[1].split(","), sys.argv[2:]
sys.meta_path.insert(0, Absent())
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TRANSFORMERS = """
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
sys.modules["torchaudio"] = ModuleType("torchaudio")  # fairseq's, which does not load beside every torch
sys.modules["torchaudio"].__spec__ = ModuleSpec("torchaudio", None)
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folders, beams, *sentences = sys.argv[1:]
sys.stdout.reconfigure(encoding="utf-8")
for folder in folders.split(","):
    trust = folder.endswith("with-code")
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=trust)
    batch = tokenizer(sentences, return_tensors="pt", padding=True)
    for beam in beams.split(","):
        found = model.generate(**batch, num_beams=int(beam))
        print(*tokenizer.batch_decode(found, skip_special_tokens=True), sep="\\n")
"""


def without(modules: tuple[str, ...], program, *arguments, cwd) -> list[str]:
    """What a program prints, in a process without these modules, in a folder with nothing else."""
    words = [sys.executable, "-c", WITHOUT, ",".join(modules), program, *arguments]
    given = {"cwd": cwd, "env": {**environment(), "HF_HUB_OFFLINE": "1"}, "timeout": 600}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **given)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def random_model(trained, corpus, path, **settings):
    """A checkpoint with other settings and random weights, whose translations differ, and end."""
    state = load_checkpoint(trained / "checkpoint_last.pt")
    args = state["cfg"]["model"]
    vars(args).update(settings)
    task = TranslationTask.setup_task(
        TranslationConfig(data=str(corpus / "bin"), source_lang="de", target_lang="en")
    )
    torch.manual_seed(2)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "embed_tokens" not in name:
            parameter.data *= 5 if "encoder_attn" in name else 1.5
    model.decoder.embed_tokens.weight.data[task.target_dictionary.eos()] *= 4
    save_checkpoint({**state, "model": model.state_dict(), "last_optimizer_state": None}, path)
    return path


def ours(given, sentences, tmp_path, beam: int) -> list[str]:
    output = tmp_path / "ours.txt"
    script("translate", *given, "--beam", beam, "--output", output, *sentences)
    return lines(output)


@pytest.mark.parametrize("beam", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_onnxruntime_alone(trained, corpus, tmp_path, beam):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    settings = {"length_scaling": True, "encoder_normalize_before": True}
    given = of(random_model(trained, corpus, tmp_path / "random.pt", **settings), corpus)
    script("release", *given, "--onnx", tmp_path / "folder")
    sentences = lines(corpus / "text" / "test.de")[:20]
    expected = ours(given, sentences, tmp_path, beam)
    assert len(set(expected)) > 15
    program = tmp_path / "folder" / "onnx_translate.py"
    assert expected == without(("torch", *OURS), program, "--beam", beam, *sentences, cwd=tmp_path / "folder")


def test_transformers_alone(trained, corpus, tmp_path):
    """Whether or not a model brings code; one process, because it takes seconds to import transformers."""
    softmax = {"attention_normalizer": "softmax", "encoder_normalize_before": True}
    kinds = {"plain": {**softmax, "decoder_normalize_before": True}, "with-code": {}}
    sentences = lines(corpus / "text" / "test.de")[:10]
    expected = []
    for name, settings in kinds.items():
        given = of(random_model(trained, corpus, tmp_path / f"{name}.pt", **settings), corpus)
        done = script("release", *given, "--transformers", tmp_path / name)
        brings_code = bool([*(tmp_path / name).glob("*.py")])
        assert ("trust_remote_code" in done.stdout) == brings_code == (name == "with-code")
        for beam in (1, 5):
            expected += ours(given, sentences, tmp_path, beam)
            assert len(set(expected[-10:])) > 7
    program = tmp_path / "program.py"
    program.write_text(TRANSFORMERS)
    folders = ",".join(str(tmp_path / name) for name in kinds)
    assert expected == without(OURS, program, folders, "1,5", *sentences, cwd=tmp_path)


@pytest.mark.nightly
def test_the_models_that_come_with_the_project(corpus, tmp_path):
    given = ["--path", ROOT / "data" / "models" / "de-en.tar"]
    sentences = lines(corpus / "text" / "test.de")[:30]
    expected = ours(given, sentences, tmp_path, 5)
    script("release", *given, "--onnx", tmp_path / "onnx")
    program = tmp_path / "onnx" / "onnx_translate.py"
    assert expected == without(("torch", *OURS), program, *sentences, cwd=tmp_path / "onnx")
    script("release", *given, "--transformers", tmp_path / "with-code")
    program = tmp_path / "program.py"
    program.write_text(TRANSFORMERS)
    assert expected == without(OURS, program, tmp_path / "with-code", "5", *sentences, cwd=tmp_path)
