"""Exported models, used without fairseq and this package, translate as translate.py does."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace

import pytest
import torch
from commands import lines, of, script
from fairseq import models
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from forks import environment

from user_dir.checkpoints import load_checkpoint, save_checkpoint
from user_dir.models import AdaptivelySparseTransformerModel

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
        tokens = model.generate(**batch, num_beams=int(beam))
        print(*tokenizer.batch_decode(tokens, skip_special_tokens=True), sep="\\n")
"""


def without(modules: tuple[str, ...], program, *arguments, cwd) -> list[str]:
    """What a program prints, in a process without these modules, in a folder with nothing else."""
    words = [sys.executable, "-c", WITHOUT, ",".join(modules), program, *arguments]
    options = {"cwd": cwd, "env": {**environment(), "HF_HUB_OFFLINE": "1"}, "timeout": 600}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def random_model(trained, corpus, path, **settings):
    """A checkpoint with other settings and random weights, whose translations differ, and end."""
    state = load_checkpoint(trained / "checkpoint_last.pt")
    args = state["cfg"]["model"] = Namespace(**{**state["cfg"]["model"], **settings})
    task = TranslationTask.setup_task(
        TranslationConfig(data=str(corpus / "bin"), source_lang="de", target_lang="en")
    )
    torch.manual_seed(2)
    model = models.build_model(args, task)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "embed_tokens" not in name:
            parameter.data *= 5 if "encoder_attn" in name else 1.5
    model.decoder.embed_tokens.weight.data[task.target_dictionary.eos()] *= 4
    save_checkpoint({**state, "model": model.state_dict(), "last_optimizer_state": None}, path)
    return path


def ours(model, sentences, tmp_path, beam: int) -> list[str]:
    output = tmp_path / "ours.txt"
    script("translate", *model, "--beam", beam, "--output", output, *sentences)
    return lines(output)


def test_a_plain_folder_translates_by_fairseq(trained, corpus, tmp_path):
    """As its checkpoint does; with float16, from half of the bytes. Its README has the scores."""
    checkpoint = random_model(trained, corpus, tmp_path / "random.pt")
    model = of(checkpoint, corpus)
    script("evaluate", *model, "--beam", 1, "--max-len-b", 8, "--subset", "test")
    script("export", *model, "--output", tmp_path / "half")
    script("export", *model, "--output", tmp_path / "folder", "--float32")
    names = {"model.pt", "dict.de.txt", "dict.en.txt", "spm.model", "corpus.yaml", "README.md"}
    assert {path.name for path in (tmp_path / "folder").iterdir()} == names
    sentences = lines(corpus / "text" / "test.de")[:10]
    expected = ours(model, sentences, tmp_path, 3)
    assert len(set(expected)) > 7
    pieces = {"bpe": "sentencepiece", "sentencepiece_model": str(tmp_path / "folder" / "spm.model")}
    loaded = AdaptivelySparseTransformerModel.from_pretrained(str(tmp_path / "folder"), "model.pt", **pieces)
    assert loaded.translate(sentences, beam=3) == expected

    whole, half = (torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("folder", "half"))
    assert whole["extra_state"]["max_len_b"] == 200 and "@" in whole["extra_state"]["alignment"]
    for name, value in half["model"].items():
        assert not value.is_floating_point() or value.dtype == torch.float16
        torch.testing.assert_close(value.float(), whole["model"][name].float(), rtol=1e-3, atol=1e-6)
    sizes = [(tmp_path / name / "model.pt").stat().st_size for name in ("folder", "half")]
    assert sizes[1] < 0.6 * sizes[0] < 0.6 * checkpoint.stat().st_size
    card = (tmp_path / "half" / "README.md").read_text(encoding="utf-8")
    assert "adaptively_sparse_transformer" in card and "| test" in card and "that of this project" in card


@pytest.mark.nightly
def test_transformers_alone(trained, corpus, tmp_path):
    """Whether or not a model brings code; one process, because it takes seconds to import transformers."""
    softmax = {"attention_normalizer": "softmax", "encoder_normalize_before": True}
    kinds = {"plain": {**softmax, "decoder_normalize_before": True}, "with-code": {}}
    sentences = lines(corpus / "text" / "test.de")[:10]
    expected = []
    for name, settings in kinds.items():
        model = of(random_model(trained, corpus, tmp_path / f"{name}.pt", **settings), corpus)
        done = script("export", *model, "--transformers", tmp_path / name)
        brings_code = bool([*(tmp_path / name).glob("*.py")])
        assert ("trust_remote_code" in done.stdout) == brings_code == (name == "with-code")
        for beam in (1, 5):
            expected += ours(model, sentences, tmp_path, beam)
            assert len(set(expected[-10:])) > 7
    program = tmp_path / "program.py"
    program.write_text(TRANSFORMERS)
    folders = ",".join(str(tmp_path / name) for name in kinds)
    assert expected == without(OURS, program, folders, "1,5", *sentences, cwd=tmp_path)
