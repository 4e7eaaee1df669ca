"""Checkpoints that somebody made to run code, and settings that fairseq would evaluate."""

from __future__ import annotations

import ast
import copy
import errno
import os
import pickle
import re
import struct
import sys
import tracemalloc
import zipfile
import zlib
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import fairseq
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, models
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoder
from helpers import SMALL, parse, translation_task

from user_dir.errors import UserError
from user_dir.guards.hostile_checkpoints import Unreadable, read_checkpoint, require_finite
from user_dir.guards.hostile_settings import EVALUATED, FILES
from user_dir.guards.literals import is_literal, literal
from user_dir.guards.plain_data import MAX_CHARACTERS, MAX_KEY, plain_state


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
    assert not isinstance(value, str) or literal(value) == eval(value)


LARGE = ("[0] * 10**9", "[0] * 99999", "'a' * 20000", "[[0] * 9999] * 9999 * 2", "9999 * [9999 * [1], 2]")
CALLS = ("print()", "a", "a.b", "(lambda: 1)()", "[x for x in ()]", "f'{1}'", "9 ** 9", "1; 2", ["print()"])
BROKEN = ("", "\0", "\ud800", "(" * 5000, "1" * 10_001)
BUFFERS = (b"1", np.frombuffer(b"print()", "u1"), torch.ones(1), {"a": 1})


@pytest.mark.parametrize("value", [*LARGE, *CALLS, *BROKEN, *BUFFERS])
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


# ---------------------------------------------------------- what is checked is what is used


class WithAttributes(OrderedDict):
    """Pickles as an OrderedDict whose attributes say otherwise than its items."""

    def __reduce__(self):
        return OrderedDict, (), vars(self), None, iter(self.items())


def with_attributes(items: dict, **attributes) -> OrderedDict:
    made = WithAttributes(items)
    vars(made).update(attributes)
    return made


def honest() -> dict:
    made = state({"encoder_layers": 1, "nested": {"list": [{"inner": 1}]}})
    made["cfg"]["common"] = {"seed": 1}
    made["last_optimizer_state"] = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}
    return made


def places(value, path=()) -> list[tuple]:
    """The path of every dict in nested plain data."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [found for key, each in inner for found in places(each, (*path, key))]
    return [path, *below] if isinstance(value, dict) else below


def changed(value, path: tuple, change):
    """A copy of nested plain data in which ``change`` was made to what stands at ``path``."""
    if not path:
        return change(value)
    copied = copy.copy(value)
    copied[path[0]] = changed(copied[path[0]], path[1:], change)
    return copied


def test_honest_plain_data_is_read_as_it_was_written(tmp_path):
    torch.save(honest(), tmp_path / "a.pt")
    read, written = read_checkpoint(tmp_path / "a.pt"), honest()
    assert str(read) == str(written) and len(places(written)) > 10


@pytest.mark.parametrize("path", places(honest()), ids=lambda path: ".".join(map(str, path)) or "all")
def test_attributes_beside_the_items_of_a_dict_reach_nobody(tmp_path, path):
    """``_name`` as an attribute, for instance, would be what fairseq reads."""
    hostile = changed(
        honest(), path, lambda items: with_attributes(items, _name="fconv", encoder_layers="evil")
    )
    torch.save(hostile, tmp_path / "evil.pt")
    believed = torch.load(tmp_path / "evil.pt", weights_only=True)
    for key in path:
        believed = believed[key]
    assert believed._name == "fconv", "torch does not restore them any more"
    for read in all_readers(tmp_path / "evil.pt"):
        if path == ():  # rebuilt in any case
            assert type(read_checkpoint(tmp_path / "evil.pt")) is dict
            continue
        with pytest.raises(SystemExit, match=r"evil\.pt is refused: its .* has attributes beside its items"):
            read()


def test_attributes_of_a_checkpoint_never_reach_eval(tmp_path):
    """The settings of an honest model as items, and as attributes one whose settings fairseq evaluates."""
    marker = tmp_path / "marker"
    hostile = state()
    code = f"[open({str(marker)!r}, 'w') and (8, 3)][:0] or [(8, 3)]"
    hostile["cfg"]["model"] = with_attributes(hostile["cfg"]["model"], _name="fconv", encoder_layers=code)
    hostile["cfg"]["task"] = {"_name": "translation", "data": ".", "source_lang": "de", "target_lang": "en"}
    torch.save(hostile, tmp_path / "evil.pt")
    with pytest.raises(SystemExit, match="has attributes beside its items"):
        checkpoint_utils.load_model_ensemble([str(tmp_path / "evil.pt")], task=translation_task())
    assert not marker.exists()


def test_attributes_of_a_tensor_are_left_behind(tmp_path):
    tensor = torch.ones(2)
    tensor.optimizer = "evil"
    torch.save({**state(), "model": {"w": tensor}}, tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt", weights_only=True)["model"]["w"].optimizer == "evil"
    assert not vars(read_checkpoint(tmp_path / "a.pt")["model"]["w"])


def nested(levels: int):
    made = 1
    for _ in range(levels):
        made = [made]
    return made


def laughs() -> list:
    """Ten lists of ten of the same list of ten … : 10⁹ values in a file of some kilobytes."""
    made = ["ha"] * 10
    for _ in range(8):
        made = [made] * 10
    return made


def around() -> dict:
    made = {}
    made["itself"] = made
    return made


HOSTILE_VALUES = {
    "deep": (lambda: nested(60), "nested more than 50 levels deep"),
    "deeper than Python": (lambda: nested(5000), "nested more than 50|not a checkpoint"),
    "around": (around, "nested more than 50 levels deep, or within itself"),
    "laughs": (laughs, "more values than any real checkpoint"),
    "set": (lambda: {1, 2}, "is a set, which is not plain data"),
    "bytes": (lambda: b"1", "is a bytes, which is not plain data"),
    "complex": (lambda: 1j, "is a complex, which is not plain data"),
    "large": (lambda: 2**64, "is a number of more than 64 bits"),
    "bytearray": (lambda: bytearray(b"1"), "is a bytearray, which is not plain data"),
    "dtype": (lambda: torch.float32, "is a dtype, which is not plain data"),
    "key": (lambda: {b"1": 1}, "which is not plain data|has a name that is a bytes"),
}


PLACES = ("cfg", "args", "extra_state", "optimizer_history", "last_optimizer_state")
# Counting ten million values takes seconds.
SLOW = {("laughs", "optimizer_history"), ("laughs", "last_optimizer_state")}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        pytest.param(kind, place, marks=pytest.mark.nightly if (kind, place) in SLOW else [])
        for kind in HOSTILE_VALUES
        for place in PLACES
    ],
)
def test_only_plain_data_of_a_sensible_size_is_read(tmp_path, place, kind):
    make, reason = HOSTILE_VALUES[kind]
    hostile = honest()
    if place == "args":
        hostile.update(cfg=None, args=Namespace(arch="transformer", strange=make()))
    elif place == "optimizer_history":
        hostile[place][-1]["strange"] = make()
    else:
        hostile[place]["strange"] = make()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(100_000)
        torch.save(hostile, tmp_path / "evil.pt")
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(UserError, match=rf"evil\.pt is .*({reason})"):
        read_checkpoint(tmp_path / "evil.pt")


@pytest.mark.parametrize("value", [torch.ones(1), np.ones(1), np.float64(1)])
@pytest.mark.parametrize("place", ["cfg", "args"])
def test_settings_hold_no_tensors(tmp_path, place, value):
    hostile = honest()
    if place == "args":
        hostile.update(cfg=None, args=Namespace(arch="transformer", strange=value))
    else:
        hostile["cfg"]["model"]["strange"] = value
    torch.save(hostile, tmp_path / "evil.pt")
    with pytest.raises(UserError, match=r"its \w+\.[\w.]*strange is a \w+, which is not plain data"):
        read_checkpoint(tmp_path / "evil.pt")


STRANGE_TENSORS = {
    "a view of more numbers than there are": lambda: torch.ones(1).expand(1 << 38),
    "overlapping": lambda: torch.ones(8).as_strided((8, 8), (1, 0)),
    "meta": lambda: torch.empty(1 << 38, device="meta"),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "CSR": lambda: torch.eye(3).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", STRANGE_TENSORS)
@pytest.mark.parametrize("place", ["model", "extra_state", "last_optimizer_state"])
def test_only_dense_tensors_of_real_numbers_that_the_file_holds_are_read(tmp_path, place, kind):
    hostile = honest()
    hostile[place]["strange"] = STRANGE_TENSORS[kind]()
    torch.save(hostile, tmp_path / "evil.pt")
    with pytest.raises(
        UserError, match=rf"is refused: its {place}\.strange (claims|is a .* tensor)|not a checkpoint"
    ):
        read_checkpoint(tmp_path / "evil.pt")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_parameters_of_every_floating_type_views_and_ties_are_read(tmp_path, dtype):
    whole = torch.arange(12, dtype=dtype).view(3, 4)
    model = {"whole": whole, "row": whole[1], "column": whole.t(), "tied": whole, "counter": torch.tensor(3)}
    torch.save({**state(), "model": model}, tmp_path / "a.pt")
    read = read_checkpoint(tmp_path / "a.pt")["model"]
    assert all(
        torch.equal(read[name], value) and read[name].dtype == value.dtype for name, value in model.items()
    )
    require_finite(read, "a.pt")


def test_a_claim_on_memory_that_the_file_does_not_back_takes_none(tmp_path):
    """The old format says how large each tensor is before its numbers come."""
    torch.save(state(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "old.pt").read_bytes()
    claim = pickle.dumps(2, protocol=2)[2:-1]  # K\x02, the number of elements
    where = content.index(b"cpu") + len(b"cpu")
    where = content.index(claim, where)
    huge = pickle.dumps(1 << 38, protocol=2)[2:-1]
    (tmp_path / "old.pt").write_bytes(content[:where] + huge + content[where + len(claim) :])
    with pytest.raises(UserError, match=r"old\.pt is (not a checkpoint|refused)"):
        read_checkpoint(tmp_path / "old.pt")


def test_a_compressed_archive_is_refused(tmp_path):
    torch.save(state(), tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as stored,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    with pytest.raises(UserError, match=r"b\.pt is refused: it is compressed"):
        read_checkpoint(tmp_path / "b.pt")


def central(entry: zipfile.ZipInfo, method: int, packed: int) -> bytes:
    """An entry of a zip's list of contents."""
    name = entry.filename.encode()
    fields = 20, 20, 0, method, 0, 0x21, entry.CRC, packed, entry.file_size, len(name), *[0] * 5
    return struct.pack("<4s6H3I5H2I", b"PK\1\2", *fields, entry.header_offset) + name


def forged(path: Path, out: Path, lists: list[str], deflated: bool, repeated: int = 1, **end) -> None:
    """A zip with the records of ``path`` and the given lists of contents, "honest" or "stored" ones.

    Args:
        deflated: compress data.pkl; a list that is "stored" denies it.
        repeated: name each record so often.
        end: what to change in the record at the end.
    """
    body, entries = b"", []
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            content, method = archive.read(entry), 0
            if deflated and entry.filename.endswith("data.pkl"):
                packer = zlib.compressobj(9, zlib.DEFLATED, -15)
                content, method = packer.compress(content) + packer.flush(), 8
            entry.header_offset, name = len(body), entry.filename.encode()
            sizes = entry.CRC, len(content), entry.file_size, len(name), 0
            body += struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, method, 0, 0x21, *sizes) + name + content
            entries += [(entry, method, len(content))] * repeated
    tables = [
        b"".join(central(each, 0 if kind == "stored" else method, size) for each, method, size in entries)
        for kind in lists
    ]
    offset = end.get("offset", len(body))
    count = end.get("count", len(entries))
    last = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(tables[0]), offset, 0)
    out.write_bytes(body + b"".join(tables) + last)


def test_an_archive_with_one_list_of_contents_is_read(tmp_path):
    """Otherwise the next test would refuse them for another reason."""
    torch.save(state(), tmp_path / "a.pt")
    forged(tmp_path / "a.pt", tmp_path / "b.pt", ["honest"], False)
    assert torch.equal(read_checkpoint(tmp_path / "b.pt")["model"]["w"], torch.ones(2))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lists": ["honest", "stored"], "deflated": True}, "its list of contents is not as PyTorch"),
        ({"lists": ["stored"], "deflated": True}, "it is compressed"),
        ({"lists": ["honest"], "deflated": True}, "it is compressed"),
        ({"lists": ["honest"], "deflated": False, "count": 1}, "its list of contents is not as PyTorch"),
        ({"lists": ["honest"], "deflated": False, "offset": 30}, "its list of contents is not as PyTorch"),
        ({"lists": ["honest"], "deflated": False, "repeated": 900}, "it claims to hold"),
    ],
)
def test_an_archive_that_could_unpack_to_more_than_its_size_is_refused(tmp_path, given, reason):
    torch.save(state(), tmp_path / "a.pt")
    if given.get("repeated"):  # so large a record that the list is small beside it
        torch.save(state(extra_state={"long": torch.ones(1000)}), tmp_path / "a.pt")
    forged(tmp_path / "a.pt", tmp_path / "b.pt", **given)
    with pytest.raises(UserError, match=rf"b\.pt is refused: {reason}"):
        read_checkpoint(tmp_path / "b.pt")


def test_a_zip64_archive_with_two_lists_of_contents_is_refused(tmp_path):
    torch.save(state(), tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    length, offset = struct.unpack("<40xQQ", content[-98:-42])
    assert content[-98:-94] == b"PK\x06\x06" and offset + length == len(content) - 98
    again = content[offset : offset + length]
    end = content[-98:-42] + content[-42:-34] + struct.pack("<QL", len(content) - 98 + length, 1)
    (tmp_path / "b.pt").write_bytes(content[:-98] + again + end + content[-22:])
    assert torch.load(tmp_path / "b.pt", weights_only=True), "torch does not read it anyhow"
    with pytest.raises(UserError, match=r"b\.pt is refused: its list of contents"):
        read_checkpoint(tmp_path / "b.pt")


def test_an_archive_that_python_does_not_take_for_one_is_checked(tmp_path):
    """Python's zipfile gives up at a second signature of the end, torch does not."""
    torch.save(state(), tmp_path / "a.pt")
    forged(tmp_path / "a.pt", tmp_path / "b.pt", ["honest"], True)
    content = (tmp_path / "b.pt").read_bytes()
    (tmp_path / "b.pt").write_bytes(content[:-2] + struct.pack("<H", 8) + b"PK\5\6" + bytes(4))
    assert not zipfile.is_zipfile(tmp_path / "b.pt")
    with pytest.raises(UserError, match=r"b\.pt is (not a checkpoint|refused)"):
        read_checkpoint(tmp_path / "b.pt")


@pytest.mark.parametrize("place", ["cfg", "extra_state"])
def test_long_keys_are_refused(tmp_path, place):
    """A file holds a key once, however many dicts have it; the places of all would be joined from it."""
    hostile, key = state(), "k" * (1 << 20)
    made = {}
    for _ in range(45):
        made = {key: made}
    hostile[place]["strange"] = made
    torch.save(hostile, tmp_path / "evil.pt")
    with pytest.raises(UserError, match=rf"its {place}\.strange has a key of 1048576 characters; the limit"):
        read_checkpoint(tmp_path / "evil.pt")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda key: [{key: 1} for _ in range(MAX_CHARACTERS // MAX_KEY + 1)], "has more text than any"),
        (lambda key: {(key,) * 2000: 1}, "has a key of 2000 values"),
        (lambda key: {(key + "k", 1): 1}, "has a key of 1001 characters"),
        (lambda key: {2**64: 1}, "is a number of more than 64 bits"),
    ],
)
def test_keys_count_as_text(tmp_path, make, reason):
    torch.save(state(extra_state={"strange": make("k" * MAX_KEY)}), tmp_path / "evil.pt")
    with pytest.raises(UserError, match=rf"its extra_state\.strange {reason}"):
        read_checkpoint(tmp_path / "evil.pt")


def test_the_place_of_a_value_is_not_kept_in_full():
    made = {}
    for _ in range(48):
        made = {"k" * MAX_KEY: made}
    tracemalloc.start()
    try:
        plain_state({"extra_state": made}, "a.pt", 0)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


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
    ],
)
@pytest.mark.parametrize("place", ["torch", "open"])
def test_a_file_that_the_system_does_not_read_is_not_called_corrupt(
    tmp_path, monkeypatch, error, reason, place
):
    torch.save(state(), tmp_path / "a.pt")

    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*((torch, "load") if place == "torch" else (Path, "open")), fail)
        with pytest.raises(Unreadable, match=rf"a\.pt cannot be read: {reason}.*; it may be whole"):
            read_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EINVAL, "an offset before the file"),
        RuntimeError("PytorchStreamReader failed"),
        RuntimeError(f"DefaultCPUAllocator: you tried to allocate {1 << 50} bytes. Error code 12 (no)"),
    ],
)
def test_what_a_corrupt_file_leads_to_is_not_blamed_on_the_system(tmp_path, monkeypatch, error):
    torch.save(state(), tmp_path / "a.pt")

    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", fail)
        with pytest.raises(UserError, match=r"a\.pt is not a checkpoint, or is cut short") as caught:
            read_checkpoint(tmp_path / "a.pt")
    assert not isinstance(caught.value, Unreadable)


@pytest.mark.parametrize("form", ["dict", "namespace", "args"])
def test_files_that_a_checkpoint_names_are_not_followed(tmp_path, form):
    names = sorted(FILES | {"data"})
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    made = {"_name": "transformer", "arch": "transformer", "task": "translation"}
    made.update(dict.fromkeys(names, str(tmp_path / "pipe")), source_lang="de", target_lang="en")
    hostile = state(made)
    if form == "namespace":
        hostile["cfg"]["model"] = Namespace(**made)
    elif form == "args":
        hostile.update(cfg=None, args=Namespace(**made))
    torch.save(hostile, tmp_path / "a.pt")

    def loaded(overrides=None):
        read = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "a.pt"), overrides)
        return read["args"] if form == "args" else read["cfg"]["model"]

    assert "pipe" not in str(loaded())
    given = loaded(dict.fromkeys(names, "given"))
    assert {getattr(given, name) for name in names} == {"given"}


def test_names_of_files_among_fairseqs_settings_are_all_known():
    """Found in fairseq's source: flags and fields that say that they are a path, a file or a folder."""
    says = re.compile(r"\b(path|paths|file|folder|directory|dir|filename)\b", re.I)
    root, found = Path(fairseq.__file__).parent, set()
    for file in root.rglob("*.py"):
        if file.relative_to(root).parts[0] == "examples":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text, names = ast.unparse(node), [node.target.id]
                fits = "metadata" in text and re.search(r"\bstr\b|Any", ast.unparse(node.annotation))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                text = ast.unparse(node)
                words = [each.value for each in node.args if isinstance(each, ast.Constant)]
                names = [word.lstrip("-").replace("-", "_") for word in words if word.startswith("--")]
                fits = "store_" not in text and "type=int" not in text and "type=float" not in text
            else:
                continue
            if fits and says.search(text.replace("_", " ")):
                found.update(names)
    assert len(found) > 40, "the search finds nothing"
    # Endings of names in the data folder, words and switches.
    no_files = {
        "aim_run_hash",
        "align_suffix",
        "arch",
        "best_checkpoint_metric",
        "channels",
        "checkpoint_suffix",
        "data",
        "labels",
        "langs",
        "mcd_normalize_type",
    }
    assert found - FILES - no_files == set()


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
    with pytest.raises(
        UserError, match=r"no dictionary .*dict\.de\.txt"
    ):  # the task is set up before the model
        checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(tmp_path)})
    assert "evil_plugin" not in sys.modules
    assert not (tmp_path / "marker").exists()


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
    with pytest.raises(UserError, match=r"a\.pt is unusable: its encoder\.layers\.1"):
        require_finite(parameters, "a.pt")
