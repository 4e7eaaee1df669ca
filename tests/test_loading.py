"""Checkpoints that somebody made to run code, and settings that fairseq would evaluate."""

from __future__ import annotations

import ast
import copy
import sys
from argparse import Namespace
from pathlib import Path

import fairseq
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoder
from helpers import SMALL, parse, translation_task

from user_dir.errors import UserError
from user_dir.loading import EVALUATED, is_literal, read_checkpoint, require_finite


def state(model: dict | None = None, **more) -> dict:
    settings = {"model": {"_name": "transformer", **(model or {})}, "task": {"_name": "translation"}}
    history = [{"num_updates": 3, "optimizer_name": "FairseqAdam", "lr_scheduler_state": {}}]
    past = {"optimizer_history": history, "extra_state": {"train_iterator": {"epoch": 1}}}
    return {"model": {"w": torch.ones(2)}, "args": None, "cfg": settings, **past, **more}


def all_readers(path):
    """Ours, and the one of fairseq's that all its commands read checkpoints by, also in parts."""
    # A UserError is a SystemExit too; fairseq's trainer is ended by the latter alone.
    part = checkpoint_utils.load_pretrained_component_from_model
    return [
        lambda: read_checkpoint(path),
        lambda: checkpoint_utils.load_checkpoint_to_cpu(str(path)),
        lambda: part(FairseqEncoder(None), str(path)),
    ]


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
        lambda evil: {"model": evil},
        lambda evil: {**state(), "cfg": evil},
        lambda evil: {**state(), "last_optimizer_state": {"state": {0: evil}}},
        lambda evil: {**state(), "extra_state": {evil: 1}},
        lambda evil: {**state(), "model": {"w": torch.ones(2), "v": evil}},
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
    for read in all_readers(path):
        with pytest.raises(SystemExit, match=r"evil\.pt is refused: besides plain data it holds"):
            read()
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "it would not have run anyhow"


@pytest.mark.parametrize("kind", ["O", "V8", "U4", "M8[s]"])
def test_only_numbers_of_numpy_are_read(tmp_path, kind):
    torch.save(state(best=np.zeros(2, kind)), tmp_path / "file.pt")
    with pytest.raises(UserError, match=r"file\.pt"):
        read_checkpoint(tmp_path / "file.pt")


FORGED = (3, "<", None, None, None, -1, -1, 0x2D)


class ForgedType:
    """float64, whose state tells numpy that its values are pointers to objects."""

    def __reduce__(self):
        return np.dtype, ("f8", False, True), FORGED


def test_forged_flags_of_a_dtype_come_to_nothing(tmp_path):
    reconstruct, _, _ = np.array([0]).__reduce__()
    scalar = np.float64(0).__reduce__()[0]
    array = Runs(reconstruct, np.ndarray, (0,), b"b")
    content = np.array([1.5, 2.5]).tobytes()
    array.call = (*array.call, (1, (2,), ForgedType(), False, content))
    forged = {"array": array, "number": Runs(scalar, ForgedType(), content[:8])}
    torch.save(state(extra_state=forged), tmp_path / "file.pt")
    believed = np.dtype("f8", False, True)
    believed.__setstate__(FORGED)
    assert believed.hasobject, "numpy does not believe it either"
    read = read_checkpoint(tmp_path / "file.pt")["extra_state"]
    assert not read["array"].dtype.hasobject
    assert (read["array"].tolist(), read["number"]) == ([1.5, 2.5], 1.5)


@pytest.mark.parametrize(
    "value", [np.arange(6).reshape(2, 3), np.float32(0.1), np.ones((2, 2), ">i4"), np.True_]
)
def test_numpy_that_was_loaded_is_saved_and_loaded_again(tmp_path, value):
    torch.save(state(best=value), tmp_path / "a.pt")
    first = read_checkpoint(tmp_path / "a.pt")
    torch.save(copy.deepcopy(first), tmp_path / "b.pt")
    again = read_checkpoint(tmp_path / "b.pt")["best"]
    assert again.dtype == value.dtype.newbyteorder("=")
    assert np.array_equal(again, value)


def test_settings_that_fairseq_evaluates_are_all_known():
    """Found in fairseq's source: what is passed to eval, or to what passes it on to eval."""
    evaluators = {"eval", "exec", "eval_str_list", "eval_str_dict", "eval_bool"}
    root = Path(fairseq.__file__).parent
    unknown = {}
    for file in root.rglob("*.py"):
        if file.relative_to(root).parts[0] == "examples":  # not part of the package
            continue
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if any(name + "(" in text for name in evaluators) else "")):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function = node.func
            name = getattr(function, "id", None)
            if isinstance(function, ast.Attribute) and function.attr in evaluators - {
                "eval"
            }:  # .eval() is torch's
                name = function.attr
            if name in evaluators:
                argument = node.args[0]
                setting = argument.attr if isinstance(argument, ast.Attribute) else ast.unparse(argument)
                unknown.setdefault(setting, []).append(file.relative_to(root).as_posix())
    assert len(unknown) > 20, "the search finds nothing"
    for setting in EVALUATED:
        unknown.pop(setting, None)
    places = {
        "x": {
            "utils.py",
            "dataclass/utils.py",
            "models/lightconv.py",
            "models/lightconv_lm.py",
        },  # evaluators, flags
        "uf": {"data/multilingual/multilingual_data_manager.py"},  # flags of the command line
        "line.strip()": {"data/codedataset.py"},  # a line of data of the task for spoken dialogue
    }
    assert {setting: set(files) for setting, files in unknown.items()} == places


@pytest.mark.parametrize(
    "value",
    [
        "1,2",
        "[(512, 3)] * 20",
        "[True] + [False]*5",
        "(0.9, 0.98)",
        "{'a': 1}",
        "-1e-8",
        None,
        3,
        [1, 2],
        "'a'",
    ],
)
def test_literals(value):
    assert is_literal(value)
    assert not isinstance(value, str) or eval(value) is not None


CALLS = ("print()", "a", "a.b", "(lambda: 1)()", "[x for x in ()]", "f'{1}'", "9 ** 9", "1; 2", ["print()"])
BROKEN = ("", "\0", "\ud800", "(" * 5000, "1" * 10_001)
BUFFERS = (b"1", np.frombuffer(b"print()", "u1"), torch.ones(1), {"a": 1})


@pytest.mark.parametrize("value", [*CALLS, *BROKEN, *BUFFERS])
def test_no_literals(value):
    assert not is_literal(value)


def evil(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w') and []"


# Each runs in fairseq, without us, as soon as it builds what the checkpoint names.
HOSTILE_MODELS = {
    "fconv": {"encoder_layers": evil},
    "fconv_self_att": {"pretrained": evil},
    "lstm": {"decoder_attention": evil},
    "transformer": {"adaptive_softmax_cutoff": evil, "encoder_embed_dim": 8, "decoder_embed_dim": 8},
}


def build(name: str, settings: dict) -> None:
    from fairseq import models

    args = parse(SMALL, arch="transformer")
    models.build_model(
        Namespace(**{**vars(args), **settings, "_name": name, "arch": name}), translation_task()
    )


@pytest.mark.parametrize("name", HOSTILE_MODELS)
@pytest.mark.parametrize("form", ["cfg", "namespace", "args", "nested"])
def test_settings_that_fairseq_would_run_are_refused(tmp_path, name, form):
    marker, path = tmp_path / "marker", tmp_path / "evil.pt"
    settings = {
        key: value(marker) if callable(value) else value for key, value in HOSTILE_MODELS[name].items()
    }
    made = {"_name": name, "arch": name, **settings}
    if form == "args":
        hostile = {**state(), "cfg": None, "args": Namespace(task="translation", **made)}
    else:
        hostile = state()
        model = {"cfg": made, "namespace": Namespace(**made), "nested": {"w2v_args": {"model": [made]}}}[form]
        hostile["cfg"]["model"] = model
    torch.save(hostile, path)
    for read in all_readers(path):
        with pytest.raises(SystemExit, match=r"evil\.pt is refused: its \w+ is .*would run as Python"):
            read()
    assert not marker.exists()
    if form == "namespace":
        try:
            build(name, settings)
        except Exception as error:
            print(error)  # the rest of the settings is not to its liking
        assert marker.exists(), "fairseq does not evaluate it any more"


@pytest.mark.parametrize(
    "section, name, value",
    [
        ("criterion", "wer_args", "print()"),
        ("task", "left_pad_source", b"print()"),
        ("optimizer", "adam_betas", "print()"),
        ("model", "adaptive_softmax_cutoff", "${task.innocent}"),
        ("model", "w2v_args", "${oc.create:'{character_filters: 1}'}"),
        ("task", "data", "${oc.env:HOME}"),
    ],
)
def test_no_detour_to_what_fairseq_evaluates(tmp_path, section, name, value):
    """fairseq-validate builds the criterion of the checkpoint; OmegaConf resolves what is in braces."""
    hostile = state()
    hostile["cfg"].setdefault(section, {})[name] = value
    torch.save(hostile, tmp_path / "evil.pt")
    for read in all_readers(tmp_path / "evil.pt"):
        with pytest.raises(SystemExit, match=f"evil.pt is refused: its {name} is"):
            read()


def test_a_plugin_that_a_checkpoint_names_is_not_imported(tmp_path):
    plugin, path = tmp_path / "evil_plugin", tmp_path / "checkpoint.pt"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    hostile = state()
    languages = {"source_lang": "de", "target_lang": "en"}
    hostile["cfg"]["task"] = {"_name": "translation", "data": ".", "user_dir": str(plugin), **languages}
    hostile["cfg"]["common"] = {"user_dir": str(plugin)}
    torch.save(hostile, path)
    checkpoint_utils.load_checkpoint_to_cpu(str(path))
    with pytest.raises(FileNotFoundError, match=r"dict\.de\.txt"):  # the task is set up before the model
        checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(tmp_path)})
    assert "evil_plugin" not in sys.modules
    assert not (tmp_path / "marker").exists()


def test_settings_that_hold_themselves_are_read_to_an_end(tmp_path):
    around = state()
    around["cfg"]["common"] = around["cfg"]
    torch.save(around, tmp_path / "file.pt")
    read_checkpoint(tmp_path / "file.pt")


def cut(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda whole: b"",
        lambda whole: b"plain text\n",
        lambda whole: b"PK\x05\x06" + bytes(18),  # a zip of nothing
        cut,
        lambda whole: whole[:-1],
        lambda whole: whole[1:],
        lambda whole: b"\x80\x02]q\x00.",  # a pickle of a list
    ],
)
def test_broken_files_end_fairseq_in_a_sentence(tmp_path, make):
    torch.save(state(), tmp_path / "whole.pt")
    path = tmp_path / "file.pt"
    path.write_bytes(make((tmp_path / "whole.pt").read_bytes()))
    for read in all_readers(path):
        with pytest.raises(SystemExit, match=r"file\.pt is not a checkpoint, or is cut short"):
            read()


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(UserError, match="is a folder, not a checkpoint"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"optimizer_history": []},
        {"optimizer_history": [3]},
        {"optimizer_history": [{"num_updates": "many"}]},
        {"extra_state": [1]},
        {"model": {1: torch.ones(1)}},
        {"cfg": {"model": {}, "task": {"a": 1}}},
        {"cfg": None},
    ],
)
def test_what_fairseq_takes_for_granted_is_checked(tmp_path, wrong):
    torch.save({**state(), **wrong}, tmp_path / "file.pt")
    for read in all_readers(tmp_path / "file.pt"):
        with pytest.raises(SystemExit, match="is not a checkpoint that fairseq wrote"):
            read()


def test_what_fairseq_cannot_read_is_said_in_a_sentence(tmp_path):
    strange = state()
    del strange["optimizer_history"]  # older than that, and yet without what was there before
    torch.save(strange, tmp_path / "file.pt")
    with pytest.raises(
        SystemExit, match=r"file\.pt has settings that do not work: KeyError 'best_loss'"
    ) as ended:
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "file.pt"))
    assert not isinstance(ended.value, Exception), "hydra would make a traceback of it"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_our_model_takes_no_parameters_that_are_not_finite(value):
    model = ARCH_MODEL_REGISTRY["adaptively_sparse_transformer"].build_model(parse(SMALL), translation_task())
    parameters = model.state_dict()
    model.load_state_dict(parameters)
    parameters["encoder.layers.1.fc1.weight"][2, 3] = value
    with pytest.raises(SystemExit, match=r"encoder\.layers\.1\.fc1\.weight has values that are not finite"):
        model.load_state_dict(parameters)
    with pytest.raises(UserError, match=r"a\.pt is of no use: its encoder\.layers\.1"):
        require_finite(parameters, "a.pt")
