"""Checkpoints that somebody made to run code, and files that cannot be read."""

import errno
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, models
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoder
from helpers import SMALL, checkpoint_state, parse, translation_task

from user_dir.errors import UserError
from user_dir.guards.checkpoint_files import Unreadable, read_checkpoint, require_finite


def refused(path, message: str) -> None:
    """Our reader refuses, and the one of fairseq's that all its commands use, also for parts of a model."""
    part = checkpoint_utils.load_pretrained_component_from_model
    for read in (
        lambda: read_checkpoint(path),
        lambda: checkpoint_utils.load_checkpoint_to_cpu(str(path)),
        lambda: part(FairseqEncoder(None), str(path)),
    ):
        # A UserError is a SystemExit too; fairseq's trainer is ended by the latter alone.
        with pytest.raises(SystemExit, match=rf"{path.name} is {message}"):
            read()


class Runs:
    """What pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "place",
    [
        lambda evil: evil,
        lambda evil: checkpoint_state(cfg=evil),
        lambda evil: checkpoint_state(last_optimizer_state={"state": {0: evil}}),
        lambda evil: checkpoint_state(extra_state={evil: 1}),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("call", ["open", "touch", "exec"])
def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(tmp_path, place, zipped, call):
    marker, path = tmp_path / "marker", tmp_path / "evil.pt"
    evil = {
        "open": Runs(open, str(marker), "w"),
        "touch": Runs(Path.touch, marker),
        "exec": Runs(exec, f"open({str(marker)!r}, 'w')"),
    }[call]
    torch.save(place(evil), path, _use_new_zipfile_serialization=zipped)
    refused(path, "refused: besides plain data it holds")
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "it would not have run anyhow"


# Each runs in fairseq, without us, as soon as it builds what the checkpoint names.
HOSTILE_MODELS = {
    "fconv": {"encoder_layers": "{}"},
    "fconv_self_att": {"pretrained": "{}"},
    "lstm": {"decoder_attention": "{}"},
    "transformer": {"adaptive_softmax_cutoff": "{}", "encoder_embed_dim": 8, "decoder_embed_dim": 8},
}


@pytest.mark.parametrize("name", HOSTILE_MODELS)
@pytest.mark.parametrize("form", ["cfg", "namespace", "args", "nested"])
def test_settings_that_fairseq_would_run_are_refused(tmp_path, name, form):
    marker, path = tmp_path / "marker", tmp_path / "evil.pt"
    evil = f"open({str(marker)!r}, 'w') and []"
    settings = {key: evil if value == "{}" else value for key, value in HOSTILE_MODELS[name].items()}
    made = {"_name": name, "arch": name, **settings}
    if form == "args":
        hostile = checkpoint_state(cfg=None, args=Namespace(task="translation", **made))
    else:
        hostile = checkpoint_state()
        model = {"cfg": made, "namespace": Namespace(**made), "nested": {"w2v_args": {"model": [made]}}}[form]
        hostile["cfg"]["model"] = model
    torch.save(hostile, path)
    refused(path, r"refused: its \w+ is .*would run as Python")
    assert not marker.exists()
    if form == "namespace":
        args = Namespace(**{**vars(parse(SMALL, arch="transformer")), **made})
        try:
            models.build_model(args, translation_task())
        except Exception as error:
            print(error)  # the rest of the settings is not to its liking
        assert marker.exists(), "fairseq does not evaluate it any more"


@pytest.mark.parametrize(
    "section, name, value",
    [
        ("criterion", "wer_args", "print()"),
        ("optimizer", "adam_betas", "print()"),
        ("model", "adaptive_softmax_cutoff", "${task.innocent}"),
        ("model", "w2v_args", "${oc.create:'{character_filters: 1}'}"),
        ("task", "data", "${oc.env:HOME}"),
    ],
)
def test_no_detour_to_what_fairseq_evaluates(tmp_path, section, name, value):
    """fairseq-validate builds the criterion of the checkpoint; OmegaConf resolves what is in braces."""
    hostile = checkpoint_state()
    hostile["cfg"].setdefault(section, {})[name] = value
    torch.save(hostile, tmp_path / "evil.pt")
    refused(tmp_path / "evil.pt", f"refused: its {name} is")


def test_a_plugin_that_a_checkpoint_names_is_not_imported(tmp_path):
    plugin, path = tmp_path / "evil_plugin", tmp_path / "checkpoint.pt"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    hostile = checkpoint_state()
    languages = {"source_lang": "de", "target_lang": "en"}
    hostile["cfg"]["task"] = {"_name": "translation", "data": ".", "user_dir": str(plugin), **languages}
    hostile["cfg"]["common"] = {"user_dir": str(plugin)}
    torch.save(hostile, path)
    checkpoint_utils.load_checkpoint_to_cpu(str(path))
    with pytest.raises(UserError, match=r"no dictionary .*dict\.de\.txt"):  # set up before the model
        checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(tmp_path)})
    assert "evil_plugin" not in sys.modules
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(errno.EACCES, "no"), "Permission denied"),
        (OSError(errno.EMFILE, "no"), "Too many open files"),
        (OSError(errno.EIO, "no"), "Input/output error"),
        (MemoryError(), "Cannot allocate memory"),
        (RuntimeError("unable to mmap 99 bytes from file <a>: Cannot allocate memory (12)"), "Cannot alloc"),
        (RuntimeError("unable to open file <a> in read-only mode: Too many open files (24)"), "Too many"),
        (RuntimeError("open file failed because of errno 13 on fopen: no, file path: a"), "Permission"),
        (RuntimeError("DefaultCPUAllocator: you tried to allocate 9 bytes. Error code 12 (no)"), "Can"),
        # What a corrupt file leads to is not blamed on the system.
        (OSError(errno.EINVAL, "an offset before the file"), None),
        (RuntimeError("PytorchStreamReader failed"), None),
        (
            RuntimeError(f"DefaultCPUAllocator: you tried to allocate {1 << 50} bytes. Error code 12 (no)"),
            None,
        ),
    ],
)
@pytest.mark.parametrize("place", ["torch", "open"])
def test_a_file_that_the_system_does_not_read_is_not_called_corrupt(
    tmp_path, monkeypatch, error, reason, place
):
    torch.save(checkpoint_state(), tmp_path / "a.pt")

    def fail(*args, **kwargs):
        raise error

    said = (
        f"cannot be read: {reason}.*; it may be whole" if reason else "is not a checkpoint, or is cut short"
    )
    with monkeypatch.context() as patch:
        patch.setattr(*((torch, "load") if place == "torch" else (Path, "open")), fail)
        with pytest.raises(UserError, match=rf"a\.pt {said}") as caught:
            read_checkpoint(tmp_path / "a.pt")
    assert isinstance(caught.value, Unreadable) == (reason is not None)


@pytest.mark.parametrize(
    "make",
    [
        lambda whole: b"",
        lambda whole: b"plain text\n",
        lambda whole: bytes(range(256)),
        lambda whole: b"PK\x03\x04 cut",
        lambda whole: b"PK\x05\x06" + bytes(18),  # a zip of nothing
        lambda whole: whole[: len(whole) * 2 // 3],
        lambda whole: whole[:-1],
        lambda whole: whole[1:],
        lambda whole: b"\x80\x02]q\x00.",  # a pickle of a list
    ],
)
def test_broken_files_end_fairseq_in_a_sentence(tmp_path, make):
    path = tmp_path / "file.pt"
    torch.save(checkpoint_state(), path)
    path.write_bytes(make(path.read_bytes()))
    refused(path, "not a checkpoint, or is cut short")


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(UserError, match="is a folder, not a checkpoint"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        [1],
        {"model": 3},
        checkpoint_state(optimizer_history=[]),
        checkpoint_state(optimizer_history=[3]),
        checkpoint_state(optimizer_history=[{"num_updates": "many"}]),
        checkpoint_state(extra_state=[1]),
        checkpoint_state(model={1: torch.ones(1)}),
        checkpoint_state(cfg={"model": {}, "task": {"a": 1}}),
        checkpoint_state(cfg={}),
        checkpoint_state(cfg=7),
        checkpoint_state(cfg=None),
    ],
    ids=str,
)
def test_what_fairseq_takes_for_granted_is_checked(tmp_path, wrong):
    torch.save(wrong, tmp_path / "file.pt")
    refused(tmp_path / "file.pt", "not a checkpoint that fairseq wrote")


def test_what_fairseq_cannot_read_is_said_in_a_sentence(tmp_path):
    strange = checkpoint_state()
    del strange["optimizer_history"]  # older than that, and yet without what was there before
    torch.save(strange, tmp_path / "file.pt")
    with pytest.raises(SystemExit, match=r"file\.pt has settings that do not work: KeyError 'best_lo") as end:
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "file.pt"))
    assert not isinstance(end.value, Exception), "hydra would make a traceback of it"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_our_model_takes_no_parameters_that_are_not_finite(value):
    model = ARCH_MODEL_REGISTRY["adaptively_sparse_transformer"].build_model(parse(SMALL), translation_task())
    parameters = model.state_dict()
    model.load_state_dict(parameters)
    parameters["encoder.layers.1.fc1.weight"][2, 3] = value
    with pytest.raises(SystemExit, match=r"encoder\.layers\.1\.fc1\.weight has values that are not finite"):
        model.load_state_dict(parameters)
    with pytest.raises(UserError, match=r"a\.pt is unusable: its encoder\.layers\.1"):
        require_finite(parameters, "a.pt")


def test_a_missing_checkpoint_is_named(tmp_path):
    (tmp_path / "there.pt").touch()
    loaded = (
        lambda path: checkpoint_utils.load_model_ensemble_and_task([str(path)]),
        lambda path: checkpoint_utils.load_pretrained_component_from_model(FairseqEncoder(None), str(path)),
    )
    for load in loaded:
        with pytest.raises(SystemExit, match=r"none\.pt"):
            load(tmp_path / "none.pt")
        with pytest.raises(SystemExit, match=r"there\.pt is not a checkpoint"):
            load(tmp_path / "there.pt")
