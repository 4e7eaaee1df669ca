"""Building an archive: what is in it, what its card says, and that equal input gives equal bytes."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
import yaml
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from helpers import translation_task
from tiny_release import files_of, tiny_checkpoint, tiny_corpus, tiny_state

from user_dir.checkpoints import for_inference, load_checkpoint, save_checkpoint
from user_dir.config import check_settings
from user_dir.errors import UserError
from user_dir.releases import building as building
from user_dir.releases.building import write_release
from user_dir.releases.opened import opened
from user_dir.releases.scores import scores_folder
from user_dir.translation.translator import open_translator

WHEEL = "adaptively_sparse-0.1.0-py3-none-any.whl"
LINES = "licence: free | for all", "citation: 'Doe, 2020'"
SCORES = {
    "corpus": "mine",
    "direction": "de-en",
    "test_set": "test",
    "sentences": 11,
    "references": "data/mine/text/test.en",
    "beam": 4,
    "length_penalty": 0.6,
    "bleu": 12.345,
    "chrf": 50,
    "ter": 60.5,
    **{f"{name}_signature": f"signature of {name}" for name in ("bleu", "chrf", "ter")},
}


@pytest.fixture(autouse=True)
def _no_wheel(monkeypatch):
    """Building a wheel takes seconds; tests/test_wheel.py does it."""

    def build(folder: Path) -> Path:
        (folder / WHEEL).write_bytes(b"wheel")
        return folder / WHEEL

    monkeypatch.setattr(building, "build_wheel", build)


@pytest.fixture
def corpus(tmp_path):
    return tiny_corpus(tmp_path / "data", *LINES)


@pytest.fixture
def checkpoint(tmp_path):
    return tiny_checkpoint(tmp_path / "last.pt")


def evaluated(checkpoint: Path, **changes) -> Path:
    """A folder of scores of a checkpoint."""
    digest = sha256(checkpoint.read_bytes()).hexdigest()
    folder = checkpoint.parent / "evaluation"
    folder.mkdir(exist_ok=True)
    name = changes.get("test_set", "test")
    (folder / f"{name}.json").write_text(json.dumps({**SCORES, "checkpoint_sha256": digest, **changes}))
    return folder


def card_of(archive: Path) -> str:
    return files_of(archive)["README.md"].decode()


def test_an_archive_has_what_translating_needs(corpus, checkpoint, tmp_path):
    output = tmp_path / "new" / "mine.tar"
    release = write_release(checkpoint, corpus, tmp_path / "none", output)
    files = files_of(output)
    names = {
        "README.md",
        "corpus.yaml",
        "model.safetensors",
        "spm.model",
        "dict.de.txt",
        "dict.en.txt",
        WHEEL,
    }
    assert files.keys() - {"manifest.json"} == release.manifest.files.keys() == names
    assert files["spm.model"] == corpus.pieces.read_bytes()
    assert files["dict.de.txt"] == (corpus.bin / "dict.de.txt").read_bytes()
    sentences, flags = ["Der Hund schläft.", "Wo ist das Haus?"], {"cpu": True, "beam": 3, "nbest": 3}
    expected = open_translator([checkpoint], corpus, **flags)(sentences)
    with opened([output]) as (checkpoints, found):
        translated = open_translator(checkpoints, found, **flags)(sentences)
    scores = [[(each.text, each.score) for each in sentence] for sentence in translated]
    assert scores == [[(each.text, each.score) for each in sentence] for sentence in expected]


def test_equal_input_gives_equal_bytes_wherever_it_is(corpus, checkpoint, tmp_path):
    """Neither the folders nor what is left out, such as optimizer state and times, make a difference."""
    write_release(checkpoint, corpus, tmp_path / "none", tmp_path / "one.tar")
    state = load_checkpoint(checkpoint)
    state["cfg"]["task"]["data"] = state["cfg"]["common"]["user_dir"] = "/home/jane/elsewhere"
    state["cfg"]["checkpoint"]["save_dir"] = "/home/jane/elsewhere"
    state["cfg"]["job_logging_cfg"] = None
    state["last_optimizer_state"], state["extra_state"]["previous_training_time"] = None, 99.0
    other = tiny_checkpoint(tmp_path / "else" / "where.pt", state)
    elsewhere = tiny_corpus(tmp_path / "other", *LINES)
    write_release(other, elsewhere, tmp_path / "none", tmp_path / "two.tar")
    content = (tmp_path / "one.tar").read_bytes()
    assert content == (tmp_path / "two.tar").read_bytes()
    assert b"jane" not in content and str(tmp_path).encode() not in content
    state["model"]["decoder.layers.0.fc1.bias"][0] += 1
    write_release(tiny_checkpoint(other, state), corpus, tmp_path / "none", tmp_path / "three.tar")
    assert content != (tmp_path / "three.tar").read_bytes()


def test_the_card_is_of_this_model(corpus, checkpoint, tmp_path):
    write_release(checkpoint, corpus, tmp_path / "none", tmp_path / "mine.tar")
    card = card_of(tmp_path / "mine.tar")
    with opened([tmp_path / "mine.tar"]) as (checkpoints, found):
        model = open_translator(checkpoints, found, cpu=True, beam=1, by_fairseq=True).search.models[0]
    parameters = len(torch.cat([each.flatten() for each in set(model.parameters())]))
    for said in (
        "# mine, de → en\n",
        "| languages | de → en |",
        "| architecture | `adaptively_sparse_transformer` |",
        f"| parameters | {parameters:,} |",
        "| vocabulary | 57 pieces of sentencepiece |",
        "| updates | 3 |",
        "| licence | free \\| for all |",
        "| citation | Doe, 2020 |",
        f'pip install "./{WHEEL}[corpora]"',
        f"| torch | {torch.__version__} |",
        "The model was not scored before it was released. `python scripts/evaluate.py",
    ):
        assert said in card


def test_the_card_of_a_stock_transformer_trained_by_several_processes(corpus, tmp_path):
    state = tiny_state(arch="transformer")
    state["cfg"]["distributed_training"] = {"distributed_world_size": 4, "distributed_init_method": "tcp://h"}
    write_release(tiny_checkpoint(tmp_path / "x.pt", state), corpus, tmp_path / "none", tmp_path / "mine.tar")
    card = card_of(tmp_path / "mine.tar")
    assert "A Transformer that translates sentences" in card and "Adaptively Sparse" not in card
    assert "| architecture | `transformer` |" in card and "| attention |" not in card
    assert "| processes in training | 4 |" in card and "distributed" not in card and "tcp://" not in card


def test_the_example_of_the_card_runs(corpus, checkpoint, tmp_path, monkeypatch, capsys):
    write_release(checkpoint, corpus, tmp_path / "none", tmp_path / "ARCHIVE.tar")
    (tmp_path / "source.txt").write_text("Der Hund\u2028schläft.\n\nWo ist das Haus?\n", encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card_of(tmp_path / "ARCHIVE.tar"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code.replace("adaptively_sparse.", "user_dir."), {})
    first, empty, last = capsys.readouterr().out.splitlines()
    assert first and last and not empty


def test_the_card_of_a_post_editor_says_what_a_line_is(checkpoint, tmp_path):
    corpus = tiny_corpus(tmp_path / "data", "origin: triplets")
    write_release(checkpoint, corpus, tmp_path / "none", tmp_path / "mine.tar")
    card = card_of(tmp_path / "mine.tar")
    assert "corrects machine translations" in card and "a tab and its machine translation" in card
    assert "| licence | not stated in its description |" in card


def settings_of(card: str) -> dict:
    (listed,) = re.findall(r"```yaml\n(.*?)```", card, re.DOTALL)
    return yaml.safe_load(listed)


FLAGS = (
    "",
    "--decoder-embed-dim 32 --decoder-ffn-embed-dim 512",
    "--encoder-normalize-before --attention-normalizer sparsemax --alpha-log-interval 7",
    "--dropout 0.3 --activation-fn gelu --encoder-layers 1",
)


@pytest.mark.parametrize("flags", FLAGS)
def test_the_settings_on_the_card_train_the_same_architecture(flags, corpus, tmp_path):
    """fairseq fills them in to the same settings, and train.py accepts them."""
    flags = flags if "decoder-embed" not in flags else flags + " --encoder-embed-dim 32"
    checkpoint = tiny_checkpoint(tmp_path / "last.pt", tiny_state(flags=flags))
    write_release(checkpoint, corpus, tmp_path / "none", tmp_path / "mine.tar")
    settings = settings_of(card_of(tmp_path / "mine.tar"))
    assert settings["common"] == {"seed": 7} and settings["checkpoint"] == {"patience": 3}
    assert settings["ema"] == {"store_ema": True, "ema_decay": 0.99}
    assert settings["task"]["source_lang"] == "de" and "data" not in settings["task"]
    assert len(settings["model"]) < 30
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(settings))
    check_settings(tmp_path / "again.yaml", ["++task.data=bin", "++checkpoint.save_dir=run"])
    args = Namespace(**settings["model"])
    ARCH_CONFIG_REGISTRY[args._name](args)
    trained = load_checkpoint(checkpoint)["cfg"]["model"]
    assert {name: getattr(trained, name) for name in vars(args)} == vars(args)
    shapes = {name: value.shape for name, value in load_checkpoint(checkpoint)["model"].items()}
    again = ARCH_MODEL_REGISTRY[args._name].build_model(args, translation_task()).state_dict()
    assert {name: value.shape for name, value in again.items()} == shapes


def test_scores_are_on_the_card(corpus, checkpoint, tmp_path):
    folder = evaluated(checkpoint)
    evaluated(checkpoint, test_set="valid", left_out_lines=[3, 4], new_piece_penalty=2.5)
    evaluated(
        checkpoint,
        test_set="train",
        references="sacrebleu's wmt14",
        uncorrected={"bleu": 1.5, "chrf": 2.5, "ter": 3.5},
    )
    release = write_release(checkpoint, corpus, folder, tmp_path / "mine.tar")
    assert release.scored == ["train", "valid", "test"]
    card = card_of(tmp_path / "mine.tar")
    assert "| test | 11 | 4 | 0.6 | 12.35 | 50.00 | 60.50 |" in card
    assert "| train, uncorrected | 11 |  |  | 1.50 | 2.50 | 3.50 |" in card
    assert "- train: the references are sacrebleu's wmt14\n" in card and "data/mine/text" not in card
    assert "- valid: 2 sentences longer than the model's limit are left out\n" in card
    assert "- valid: with a penalty of 2.5 on new pieces\n" in card
    assert "`signature of bleu`, `signature of chrf`, `signature of ter`" in card
    assert "not scored" not in card


def test_where_scores_are(checkpoint, tmp_path):
    """evaluate.py gives them a folder of the checkpoint's name; an experiment's run does not."""
    folder = evaluated(checkpoint)
    assert scores_folder(checkpoint) == folder
    (folder / checkpoint.stem).mkdir()
    assert scores_folder(checkpoint) == folder / checkpoint.stem


def test_the_training_command_names_the_text_that_cannot_be_downloaded(corpus, checkpoint, tmp_path):
    write_release(checkpoint, corpus, tmp_path / "none", tmp_path / "mine.tar")
    assert f"prepare.py {corpus.name} --raw FOLDER" in card_of(tmp_path / "mine.tar")


WRONG = {
    "another checkpoint": {"checkpoint_sha256": "0" * 64},
    "another corpus": {"corpus": "toy"},
    "another direction": {"direction": "en-de"},
    "another test set": {"test_set": "unknown"},
    "no checksum": {"checkpoint_sha256": None},
    "text for a score": {"bleu": "40"},
    "truth for a score": {"bleu": True},
    "NaN": {"bleu": float("nan")},
    "infinite": {"chrf": float("inf")},
    "negative": {"ter": -1.0},
    "a BLEU above 100": {"bleu": 101.0},
    "a beam below 0": {"beam": -5},
    "a number for uncorrected": {"uncorrected": 3},
    "text for uncorrected": {"uncorrected": {"bleu": "x", "chrf": 1, "ter": 1}},
    "a number for lines": {"left_out_lines": 3},
    "text for a penalty": {"new_piece_penalty": "x"},
}


@pytest.mark.parametrize("case", WRONG)
def test_scores_that_are_not_of_this_checkpoint_are_refused(case, corpus, checkpoint, tmp_path):
    folder = evaluated(checkpoint, **WRONG[case])
    with pytest.raises(UserError, match=r"evaluation/\w+\.json"):
        write_release(checkpoint, corpus, folder, tmp_path / "mine.tar")
    assert not (tmp_path / "mine.tar").exists()


def test_scores_that_are_no_json(corpus, checkpoint, tmp_path):
    folder = evaluated(checkpoint)
    for content in ("{", "[]", "\xff"):
        (folder / "test.json").write_text(content, encoding="latin-1")
        with pytest.raises(UserError, match=r"test\.json"):
            write_release(checkpoint, corpus, folder, tmp_path / "mine.tar")


def test_a_description_that_could_not_be_read_back_is_not_written(checkpoint, tmp_path):
    corpus = tiny_corpus(tmp_path / "data", "#" * 70_000)
    with pytest.raises(UserError, match="too large"):
        write_release(checkpoint, corpus, tmp_path / "none", tmp_path / "mine.tar")
    assert not (tmp_path / "mine.tar").exists()


def test_a_checkpoint_for_inference(tmp_path):
    """It holds each tied parameter once, though averaging untied them, and no name of a file."""
    state = tiny_state(data="/home/jane/data")
    state["model"] = {name: value.clone() for name, value in state["model"].items()}
    state["model"]["encoder.half"] = torch.ones(3, dtype=torch.bfloat16)
    before = {name: value.clone() for name, value in state["model"].items()}
    reduced = for_inference(state)
    assert state["cfg"]["task"]["data"] == "/home/jane/data", "its argument is left alone"
    tied = [
        name
        for name in reduced["model"]
        if name.endswith(("embed_tokens.weight", "output_projection.weight"))
    ]
    assert len(tied) == 3 and len({reduced["model"][name].data_ptr() for name in tied}) == 1
    save_checkpoint(reduced, tmp_path / "reduced.pt")
    loaded = load_checkpoint(tmp_path / "reduced.pt")
    assert loaded["model"].keys() == before.keys()
    for name, value in before.items():
        assert loaded["model"][name].dtype == value.dtype and torch.equal(loaded["model"][name], value)
    content = (tmp_path / "reduced.pt").read_bytes()
    assert b"jane" not in content
    size = sum(value.nbytes for name, value in before.items() if name not in tied[1:])
    assert len(content) < size + 40_000 < len(torch_bytes(before, tmp_path))


def torch_bytes(model: dict, folder: Path) -> bytes:
    torch.save({"model": model, "pad": torch.zeros(20_000)}, folder / "whole.pt")
    return (folder / "whole.pt").read_bytes()
