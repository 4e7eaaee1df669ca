"""Checkpoints: what would run code is refused; averages; fingerprints of the vocabulary."""

from __future__ import annotations

import ast
import hashlib
import os
from argparse import Namespace
from pathlib import Path

import fairseq
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, models
from fairseq.data import Dictionary
from helpers import SMALL, Disguised, Runs, checkpoint_state, parse, translation_task

from user_dir.checkpoints import (
    AVERAGED,
    EVALUATED,
    average_checkpoints,
    fingerprints_of,
    for_inference,
    is_literal,
    last_checkpoints,
    load_checkpoint,
    model_settings,
    num_updates,
    pieces_file,
    read_checkpoint,
    require_same,
)
from user_dir.checkpoints import save_checkpoint as save
from user_dir.errors import UserError
from user_dir.models.transformer import from_stock


def state(value: float = 1.0, **more) -> dict:
    return checkpoint_state(model={"w": torch.full((2,), value), "n": torch.tensor(3)}, **more)


def refused(path, message: str) -> None:
    """By our reader, and by the one of fairseq's that all its commands use."""
    for read in (read_checkpoint, lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path))):
        with pytest.raises(SystemExit, match=message) as ended:
            read(path)
        assert path.name in ended.value.code


# ------------------------------------------------------------------------------ code in checkpoints


PLACES = {
    "whole": lambda evil: evil,
    "settings": lambda evil: checkpoint_state(cfg=evil),
    "optimizer": lambda evil: checkpoint_state(last_optimizer_state={"state": {0: evil}}),
    "key": lambda evil: checkpoint_state(extra_state={evil: 1}),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(tmp_path, place, zipped):
    marker, path = tmp_path / "marker", tmp_path / "evil.pt"
    evil = Runs(exec, f"open({str(marker)!r}, 'w')") if place == "key" else Runs(Path.touch, marker)
    torch.save(PLACES[place](evil), path, _use_new_zipfile_serialization=zipped)
    refused(path, "could run code")
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "it would not have run anyhow"


# Each runs in fairseq, without us, as soon as it builds what the checkpoint names.
HOSTILE_MODELS = {
    "fconv": {"encoder_layers": "{}"},
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
    refused(path, "could run code: its setting")
    assert not marker.exists()
    if form == "namespace":
        args = Namespace(**{**vars(parse(SMALL, arch="transformer")), **made})
        try:
            models.build_model(args, translation_task())
        except Exception as error:
            print(error)  # the rest of the settings is not to its liking
        assert marker.exists(), "fairseq does not evaluate it any more"


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("criterion", "wer_args", "print()"),
        ("optimizer", "adam_betas", ["print()"]),
        ("model", "adaptive_softmax_cutoff", "${task.innocent}"),
        ("task", "data", "${oc.env:HOME}"),
        ("model", "encoder_layers", b"print()"),
        ("model", "inner", Disguised(encoder_layers=1)),
        ("model", "inner", torch.ones(1)),
        ("model", "inner", {1: 2}),
    ],
)
def test_no_detour_to_what_is_evaluated(tmp_path, section, name, value):
    hostile = checkpoint_state()
    hostile["cfg"].setdefault(section, {})[name] = value
    torch.save(hostile, tmp_path / "evil.pt")
    refused(tmp_path / "evil.pt", "could run code: its setting")


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        (" (0.9, -1e-3)", True),
        ("{'a': [1, 'b']}", True),
        ("print()", False),
        ("().__class__", False),
        ("f'{1}'", False),
        ("9 ** 9 ** 9", False),
        ("(" * 10_000, False),
    ],
)
def test_literals(text, harmless):
    assert is_literal(text) == harmless


def test_settings_that_fairseq_evaluates_are_all_known():
    """Found in fairseq's source: what is passed to eval, or to what passes it on to eval."""
    root, settings = Path(fairseq.__file__).parent, {}
    evaluators = {"exec", "eval_str_list", "eval_str_dict", "eval_bool"}
    for file in root.rglob("*.py"):
        text, name = file.read_text(encoding="utf-8"), file.relative_to(root)
        if name.parts[0] == "examples" or not any(f"{call}(" in text for call in ("eval", *evaluators)):
            continue
        for node in ast.walk(ast.parse(text)):
            function = getattr(node, "func", None)
            method = getattr(function, "attr", None) in evaluators  # .eval() is torch's
            if (method or getattr(function, "id", None) in {"eval", *evaluators}) and node.args:
                argument = node.args[0]
                setting = argument.attr if isinstance(argument, ast.Attribute) else ast.unparse(argument)
                settings.setdefault(setting, set()).add(name.as_posix())
    assert len(settings) > 20, "the search finds nothing"
    evaluate = {"utils.py", "dataclass/utils.py", "models/lightconv.py", "models/lightconv_lm.py"}
    assert {setting: files for setting, files in settings.items() if setting not in EVALUATED} == {
        "x": evaluate,  # evaluators, flags
        "uf": {"data/multilingual/multilingual_data_manager.py"},  # flags of the command line
        "line.strip()": {"data/codedataset.py"},  # a line of data of the task for spoken dialogue
    }


# ------------------------------------------------------------------------------------------ reading

BROKEN = {
    "empty": lambda whole: b"",
    "text": lambda whole: b"plain text\n",
    "a zip of nothing": lambda whole: b"PK\x05\x06" + bytes(18),
    "cut short": lambda whole: whole[: len(whole) * 2 // 3],
    "without its last byte": lambda whole: whole[:-1],
    "a pickle of a list": lambda whole: b"\x80\x02]q\x00.",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_end_in_a_sentence(tmp_path, kind):
    save(checkpoint_state(), tmp_path / "file.pt")
    (tmp_path / "file.pt").write_bytes(BROKEN[kind]((tmp_path / "file.pt").read_bytes()))
    refused(tmp_path / "file.pt", "not a checkpoint of fairseq")


@pytest.mark.parametrize(
    "wrong",
    [
        [1],
        {"model": 3},
        checkpoint_state(model={"w": 1}),
        checkpoint_state(cfg={}),
        checkpoint_state(cfg=None),
    ],
    ids=str,
)
def test_what_fairseq_takes_for_granted_is_checked(tmp_path, wrong):
    torch.save(wrong, tmp_path / "file.pt")
    refused(tmp_path / "file.pt", "not a checkpoint of fairseq")


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
@pytest.mark.parametrize("zipped", [True, False])
def test_what_happens_to_the_file_later_changes_nothing(tmp_path, zipped):
    path, weights = tmp_path / "some.pt", torch.arange(20_000.0)
    torch.save(
        checkpoint_state(model={"w": weights[:5000].view(50, 100).t(), "tied": weights}),
        path,
        _use_new_zipfile_serialization=zipped,
    )
    checkpoints = [read_checkpoint(path), checkpoint_utils.load_checkpoint_to_cpu(str(path))]
    assert str(path) not in Path("/proc/self/maps").read_text()
    os.truncate(path, 0)
    for model in (checkpoint["model"] for checkpoint in checkpoints):
        assert torch.equal(model["tied"], weights)
        model["tied"][1] = 7.0  # parameters that shared memory still do
        assert model["w"][1, 0] == 7.0


def test_numbers_of_numpy_1_and_2_load(tmp_path):
    """``--eval-bleu`` stores them; numpy 1 and 2 use different names for rebuilding them."""
    numbers = {"best": np.float64(1.5), "counts": np.array([[1, 2], [3, 4]])}
    torch.save(state(**numbers), tmp_path / "plain.pt", _use_new_zipfile_serialization=False)
    text = (tmp_path / "plain.pt").read_bytes()
    for core in (b"numpy._core", b"numpy.core"):  # in this format the pickle is not compressed
        replaced = text.replace(b"numpy._core", b"numpy.core").replace(b"numpy.core", core)
        (tmp_path / "numbers.pt").write_bytes(replaced)
        loaded = load_checkpoint(tmp_path / "numbers.pt")
        assert loaded["best"] == 1.5 and loaded["counts"].tolist() == [[1, 2], [3, 4]]
        save(loaded, tmp_path / "again.pt")
        assert type(torch.load(tmp_path / "again.pt", weights_only=False)["counts"]) is np.ndarray
    torch.save(state(best=np.array([print])), tmp_path / "objects.pt")
    refused(tmp_path / "objects.pt", "not a checkpoint of fairseq")


def test_a_checkpoint_from_before_cfg_converts_to_one_that_fairseq_reads(tmp_path):
    args = parse("--arch transformer --encoder-embed-dim 16 --encoder-attention-heads 2")
    torch.save({"args": args, "model": {}}, tmp_path / "old.pt")
    converted = load_checkpoint(tmp_path / "old.pt")
    converted["cfg"]["model"] = from_stock(model_settings(converted))
    save(converted, tmp_path / "new.pt")
    again = load_checkpoint(tmp_path / "new.pt")
    assert again["args"] is None
    assert again["cfg"]["model"].arch == "adaptively_sparse_transformer"
    assert again["cfg"]["model"].encoder_embed_dim == 16


def test_only_the_stock_transformer_converts():
    with pytest.raises(UserError, match="lstm"):
        from_stock({"_name": "lstm"})


def test_parameters_that_are_not_finite(tmp_path):
    save(checkpoint_state(model={"w": torch.tensor([1.0, torch.nan])}), tmp_path / "diverged.pt")
    with pytest.raises(UserError, match=r"diverged\.pt .* w has"):
        load_checkpoint(tmp_path / "diverged.pt")


def test_what_is_handed_over_names_no_files_and_has_tied_parameters_once():
    checkpoint = state(last_optimizer_state={"step": 1})
    checkpoint["model"]["tied"] = checkpoint["model"]["w"].clone()
    checkpoint["cfg"]["model"] |= {"alpha_log": "/home/me/alpha.jsonl", "dropout": 0.1}
    checkpoint["cfg"]["checkpoint"] = {"save_dir": "/home/me", "patience": 3}
    checkpoint["cfg"]["interactive"] = {"input": "-"}
    reduced = for_inference(checkpoint)
    assert "/home/me" not in str(reduced) and reduced["last_optimizer_state"] is None
    assert reduced["cfg"]["model"]["dropout"] == 0.1 and reduced["cfg"]["checkpoint"]["patience"] == 3
    assert reduced["model"]["tied"] is reduced["model"]["w"]
    assert checkpoint["cfg"]["checkpoint"]["save_dir"] == "/home/me"


# ----------------------------------------------------------------------------------------- averages


def test_average(tmp_path):
    paths = [tmp_path / f"checkpoint{i}.pt" for i in (9, 10, 11)]
    for path, value in zip(paths, (1.0, 2.0, 6.0)):
        history = [{"num_updates": int(value)}]
        save(state(value, last_optimizer_state={"step": 1}, optimizer_history=history), path)
    assert last_checkpoints(tmp_path, 3) == paths
    average = average_checkpoints(paths)
    assert average["model"]["w"].tolist() == [3.0, 3.0]
    assert average["model"]["w"].dtype == torch.float32
    assert average["model"]["n"] == 3
    assert average["last_optimizer_state"] is None
    assert average[AVERAGED] == for_inference(average)[AVERAGED] == [1, 2, 6]
    assert num_updates(average) == 6
    assert AVERAGED not in average_checkpoints(paths[:1])
    save(checkpoint_state(), tmp_path / "other.pt")
    save(checkpoint_state(model={"w": torch.ones(2), "v": torch.ones(2)}), tmp_path / "more.pt")
    with pytest.raises(UserError, match="different models"):
        average_checkpoints([tmp_path / "other.pt", tmp_path / "more.pt"])


def test_the_last_update_is_among_the_last_checkpoints(tmp_path):
    def save_at(updates: int, name: str) -> None:
        save(state(optimizer_history=[{"num_updates": updates}]), tmp_path / name)

    epochs = [f"checkpoint{epoch}.pt" for epoch in (1, 2, 3)]
    for number, name in enumerate(epochs, start=1):
        save_at(100 * number, name)
    save_at(200, "checkpoint_best.pt")

    def last(count: int) -> list[str]:
        return [path.name for path in last_checkpoints(tmp_path, count)]

    assert last(2) == epochs[1:]
    save_at(300, "checkpoint_last.pt")  # training ended with the epoch
    assert last(2) == epochs[1:]
    save_at(350, "checkpoint_last.pt")
    assert last(2) == [epochs[2], "checkpoint_last.pt"] and last(1) == ["checkpoint_last.pt"]
    with pytest.raises(UserError, match="has 3 checkpoints"):
        last_checkpoints(tmp_path, 5)


def test_moving_averages_are_used_on_request(tmp_path):
    for i, value in enumerate((1.0, 2.0)):
        moving = {"w": torch.full((2,), 10 * value), "n": torch.tensor(4)}
        save(state(value, extra_state={"ema": moving, "epoch": i}), tmp_path / f"{i}.pt")
    paths = [tmp_path / "0.pt", tmp_path / "1.pt"]
    for ema, value, count in ((True, 15.0, 4), (False, 1.5, 3)):
        average = average_checkpoints(paths, ema)
        assert average["model"]["w"].tolist() == [value] * 2
        assert average["model"]["n"] == count
        assert average["extra_state"] == {"epoch": 1}, "an average that is no longer of these parameters"
    save(state(), tmp_path / "plain.pt")
    with pytest.raises(UserError, match=r"plain\.pt .*--store-ema"):
        average_checkpoints([paths[0], tmp_path / "plain.pt"], ema=True)


# ------------------------------------------------------------------------------------- vocabularies


def of(words="a b c", pieces=None, counts=1, side="source"):
    dictionary = Dictionary()
    for number, word in enumerate(words.split()):
        dictionary.add_symbol(word, n=1 + number * counts)
    return fingerprints_of({side: dictionary}, {side: Path(f"dict.{side}.txt")}, pieces)


def test_symbols_and_their_order_count_and_nothing_else():
    assert of(counts=7) == of()
    digests = {
        fingerprints.recorded["dictionaries"]["source"]
        for fingerprints in map(of, ["a b c", "a c b", "a b", "a b C", "ab c"])
    }
    assert len(digests) == 5
    expected = hashlib.sha256("\n".join(["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c"]).encode())
    assert of().recorded["dictionaries"]["source"] == expected.hexdigest()


def touch(path, content="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_pieces_are_inside_a_folder_or_beside_that_of_a_corpus(tmp_path):
    assert pieces_file(tmp_path / "not there") is None
    assert pieces_file(touch(tmp_path / "hub" / "bpecodes").parent) == tmp_path / "hub" / "bpecodes"
    old = touch(tmp_path / "corpus" / "spm.model")
    folder, new = old.with_name("bin"), touch(old.with_name("text") / "vocab.txt")
    assert pieces_file(folder) is None  # of something else, as far as one can tell
    touch(old.with_name("corpus.yaml"))
    assert pieces_file(folder) == old
    old.unlink()
    assert pieces_file(folder) == new


def test_another_vocabulary_is_an_error_that_names_both(tmp_path):
    first, second = touch(tmp_path / "one.model", "1"), touch(tmp_path / "two.model", "2")
    recorded = {"vocabulary": of(pieces=first).recorded}
    require_same(recorded, "some.pt", of(pieces=first, counts=3))
    require_same(recorded, "some.pt", of())
    require_same({}, "some.pt", of("d e f"))
    for other, named in ((of(pieces=second), r"two\.model"), (of("a c b", first), r"dict\.source\.txt")):
        with pytest.raises(UserError, match=rf"some\.pt .*{named}"):
            require_same(recorded, "some.pt", other)


def test_checkpoints_are_compared_with_each_other(tmp_path):
    first, second = {"vocabulary": of().recorded}, {"vocabulary": of("c b a").recorded}
    paths = [tmp_path / "one.pt", tmp_path / "two.pt"]
    for path, recorded in zip(paths, (first, second)):
        save(state(**recorded), path)
    assert average_checkpoints(paths[:1])["vocabulary"] == first["vocabulary"]
    with pytest.raises(UserError, match=r"two\.pt and .*one\.pt"):
        average_checkpoints(paths)
