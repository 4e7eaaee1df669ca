"""What fairseq's functions make of checkpoints: written whole, compared with the vocabulary, resumed."""

import contextlib
import dataclasses
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_cli import train
from helpers import SMALL, build, checkpoint_state, dictionary, parse

from user_dir.checkpoints import require_same, save_checkpoint
from user_dir.errors import UserError
from user_dir.guards import resuming
from user_dir.guards.resuming import vocabulary_of

# ------------------------------------------------------------------------------------ written whole


@contextlib.contextmanager
def small_files(size: int):
    """No file grows beyond ``size`` bytes: writing is refused in the midst, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save(path, size: int = 10) -> None:
    state = checkpoint_state(model={"w": torch.ones(size)})
    checkpoint_utils.torch_persistent_save(state, str(path))


# Refused within the first tensor, and only as the last of it leaves the buffer.
@pytest.mark.parametrize("room", [600, 401_000])
def test_a_save_that_is_refused_ends_the_run_and_leaves_what_was(tmp_path, room):
    path = tmp_path / "checkpoint_last.pt"
    save(path)
    before = path.read_bytes()
    with small_files(room), pytest.raises(SystemExit, match="File too large"):
        save(path, 100_000)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory: .*/file/new"):
        checkpoint_utils.verify_checkpoint_directory(str(tmp_path / "file" / "new"))


def in_a_fork(function, *arguments) -> int:
    """The exit status of a process that calls a function: 3 for a UserError."""
    pid = os.fork()
    if not pid:
        try:
            function(*arguments)
            os._exit(0)
        except UserError as error:
            os._exit(3 if "another run is training in" in str(error) else 4)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_training_locks_its_folder(tmp_path):
    """As long as it lasts, even if one of its workers lives on, and in one process one after the other."""
    begin, (first, second) = (
        checkpoint_utils.verify_checkpoint_directory,
        map(str, (tmp_path / "a", tmp_path / "b")),
    )
    for folder in (first, first, second):
        begin(folder)
        torn = Path(folder, "checkpoint_last.pt.0123.tmp")
        torn.write_text("of the training that writes now")
        assert in_a_fork(begin, folder) == 3 and torn.exists()
    assert in_a_fork(begin, first) == 0
    worker_ends, end = os.pipe()
    training = os.fork()
    if not training:
        begin(first)
        if not os.fork():  # a worker of it
            os.close(end)
            os.read(worker_ends, 1)
        os._exit(0)
    os.waitpid(training, 0)
    assert in_a_fork(begin, first) == 0
    os.close(end), os.close(worker_ends)
    resuming._lock.close()


# ------------------------------------------------------------------------------------- vocabularies


def other() -> Dictionary:
    """As large as the helpers' dictionary, with two words exchanged."""
    words = dictionary()
    words.symbols[5], words.symbols[6] = words.symbols[6], words.symbols[5]
    return words


def translation(source: Dictionary, target: Dictionary, data: str = "somewhere") -> TranslationTask:
    config = TranslationConfig(data=data, source_lang="de", target_lang="en")
    return TranslationTask(config, source, target)


def test_the_dictionaries_of_each_kind_of_task():
    words, two = dictionary(), other()
    pair = vocabulary_of(translation(words, two))
    assert pair.recorded["dictionaries"]["source"] != pair.recorded["dictionaries"]["target"]
    assert pair.files["target"] == "somewhere/dict.en.txt"
    lm = vocabulary_of(LanguageModelingTask(LanguageModelingConfig(data="somewhere"), words))
    assert set(lm.recorded["dictionaries"].values()) == {pair.recorded["dictionaries"]["source"]}
    assert lm.files["source"] == "somewhere/dict.txt"
    masked = vocabulary_of(MaskedLMTask(MaskedLMConfig(data="somewhere"), dictionary()))
    assert masked.recorded["dictionaries"]["source"] != lm.recorded["dictionaries"]["source"]  # with <mask>
    assert vocabulary_of(SimpleNamespace(source_dictionary=None, target_dictionary=None)) is None


@pytest.fixture
def checkpoint(tmp_path):
    settings = vars(parse(f"{SMALL} --task translation --source-lang de --target-lang en"))
    state = checkpoint_state(settings, model=build().float().state_dict())
    state["cfg"]["model"]["_name"] = settings["arch"]
    state["cfg"]["task"] |= {"source_lang": "de", "target_lang": "en", "data": str(tmp_path)}
    state["vocabulary"] = vocabulary_of(translation(dictionary(), dictionary())).recorded
    save_checkpoint(state, tmp_path / "some.pt")
    return tmp_path / "some.pt"


@pytest.mark.parametrize("sides", [(other, dictionary), (dictionary, other)])
def test_a_model_is_loaded_with_its_vocabulary_alone(checkpoint, sides):
    def load(task):
        return checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], task=task)

    assert load(translation(dictionary(), dictionary()))
    with pytest.raises(UserError, match=r"some\.pt .*somewhere/dict\.(de|en)\.txt"):
        load(translation(*(make() for make in sides)))
    state = torch.load(checkpoint, weights_only=False)
    del state["vocabulary"]  # as fairseq alone writes it
    save_checkpoint(state, checkpoint)
    assert load(translation(*(make() for make in sides)))


def test_the_task_of_the_checkpoint_itself_is_compared_too(checkpoint, tmp_path):
    def load(words):
        for language in ("de", "en"):
            words.save(str(tmp_path / f"dict.{language}.txt"))
        return checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])

    assert load(dictionary())
    with pytest.raises(UserError, match=r"some\.pt .*dict\.\w\w\.txt"):
        load(other())


def test_a_model_needs_no_file_that_its_training_began_with(checkpoint):
    state = torch.load(checkpoint, weights_only=False)
    state["cfg"]["model"]["encoder_embed_path"] = "/no/such/file"
    save_checkpoint(state, checkpoint)
    task = translation(dictionary(), dictionary())
    assert checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], task=task)


def test_a_symbol_that_a_task_adds_is_named():
    words = [vocabulary_of(LanguageModelingTask(LanguageModelingConfig(data="somewhere"), dictionary()))]
    words.append(vocabulary_of(MaskedLMTask(MaskedLMConfig(data="somewhere"), dictionary())))
    for before, now, added in ((*words, "without <mask>"), (*reversed(words), "with <mask>")):
        with pytest.raises(UserError, match=f"some.pt was trained {added}, which a task adds"):
            require_same({"vocabulary": before.recorded}, "some.pt", now)


@pytest.mark.parametrize("fails", [KeyError("best"), AssertionError("Optimizer does not match; A vs B")])
def test_what_cannot_be_resumed_with_other_settings_is_said(fails):
    def load(self, filename):
        raise fails

    with pytest.raises(UserError, match=f"cannot resume last.pt with another optimizer.*{fails.args[0]}"):
        resuming.resume(load, SimpleNamespace(vocabulary=None), "last.pt")


# ----------------------------------------------------------------------------------------- patience

STATE = {"best": 3.5, "validations": 2, "metric": "loss"}


@pytest.fixture
def resumed():
    """``resumed(state, updates, **settings)``: what early stopping knows after resuming."""

    def resume(state, updates=10, **settings):
        vars(train.should_stop_early).clear()
        optimization = SimpleNamespace(max_update=0)
        trainer = SimpleNamespace(
            get_num_updates=lambda: updates, cfg=SimpleNamespace(optimization=optimization)
        )
        cfg = dataclasses.replace(CheckpointConfig(), **settings)
        restored = {resuming.PATIENCE: state}, None
        resuming.load_unless_finished(lambda cfg, trainer: restored, cfg, trainer)
        return vars(train.should_stop_early)

    yield resume
    vars(train.should_stop_early).clear()


def test_early_stopping_counts_on(resumed):
    assert resumed(STATE, patience=3) == {"best": 3.5, "num_runs": 2}
    assert resumed(None, patience=3) == resumed({**STATE, "metric": "bleu"}, patience=3) == {}
    for settings in ({"reset_optimizer": True}, {"reset_meters": True}):  # fairseq forgets its best, too
        assert resumed(STATE, patience=2, **settings) == {}
    assert resumed(STATE, updates=0, patience=2, finetune_from_model="model.pt") == {}


@pytest.mark.parametrize(("limit", "ends"), [(3, False), (2, True), (1, True), (0, False), (-1, False)])
def test_a_run_that_has_stopped_stays_stopped(resumed, limit, ends):
    if not ends:
        assert resumed(STATE, patience=limit)["num_runs"] == 2
        return
    with pytest.raises(SystemExit) as ended:
        resumed(STATE, patience=limit)
    assert ended.value.code == 0
