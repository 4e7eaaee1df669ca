"""Fingerprints of fairseq's tasks, and what is compared when its functions read a checkpoint."""

from argparse import Namespace
from collections import OrderedDict

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from helpers import dictionary
from tiny_release import tiny_state

from user_dir.checkpoints import average_checkpoints, for_inference, save_checkpoint
from user_dir.errors import UserError
from user_dir.guards.vocabularies import vocabulary_of


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
    assert pair.dictionaries["source"] != pair.dictionaries["target"]
    assert pair.files["target"] == "somewhere/dict.en.txt"
    lm = vocabulary_of(LanguageModelingTask(LanguageModelingConfig(data="somewhere"), words))
    assert set(lm.dictionaries.values()) == {pair.dictionaries["source"]}
    assert lm.files["source"] == "somewhere/dict.txt"
    masked = vocabulary_of(MaskedLMTask(MaskedLMConfig(data="somewhere"), dictionary()))
    assert masked.sizes["source"] == len(words) + 1  # with <mask>
    assert masked.dictionaries["source"] != lm.dictionaries["source"]
    args = Namespace(data="somewhere", lang_pairs=["de-en"], source_lang=None, target_lang=None)
    several = MultilingualTranslationTask(args, OrderedDict(de=words, en=two), training=True)
    assert list(vocabulary_of(several).dictionaries) == ["de", "en"]
    assert vocabulary_of(Namespace(source_dictionary=None, target_dictionary=None)) is None


def test_pieces_of_a_folder_with_a_colon_are_found(tmp_path):
    (tmp_path / "run-10:30").mkdir()
    (tmp_path / "run-10:30" / "spm.model").write_text("pieces")
    assert vocabulary_of(translation(dictionary(), dictionary(), str(tmp_path / "run-10:30"))).pieces


@pytest.fixture
def checkpoint(tmp_path):
    state = {**tiny_state(), "vocabulary": vocabulary_of(translation(dictionary(), dictionary())).recorded()}
    save_checkpoint(state, tmp_path / "some.pt")
    return tmp_path / "some.pt"


@pytest.mark.parametrize("sides", [(other, dictionary), (dictionary, other), (other, other)])
def test_a_model_is_loaded_with_its_vocabulary_alone(checkpoint, sides):
    def load(task):
        return checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], {"alpha_log": None}, task)

    assert load(translation(dictionary(), dictionary()))
    with pytest.raises(UserError, match=r"some\.pt .*somewhere/dict\.(de|en)\.txt"):
        load(translation(*(each() for each in sides)))
    state = torch.load(checkpoint, weights_only=False)
    del state["vocabulary"]  # as written before
    save_checkpoint(state, checkpoint)
    assert load(translation(*(each() for each in sides)))


@pytest.mark.parametrize("fingerprints", [True, False])
def test_the_task_of_the_checkpoint_itself_is_compared_too(checkpoint, tmp_path, fingerprints):
    if not fingerprints:
        state = torch.load(checkpoint, weights_only=False)
        del state["vocabulary"]
        save_checkpoint(state, checkpoint)

    def load(words):
        for language in ("de", "en"):
            words.save(str(tmp_path / f"dict.{language}.txt"))
        overrides = {"alpha_log": None, "data": str(tmp_path)}
        return checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], overrides)

    assert load(dictionary())
    larger = dictionary()
    larger.add_symbol("more")
    with pytest.raises(UserError, match=r"some\.pt .*dict\.\w\w\.txt"):
        load(larger)
    if fingerprints:
        with pytest.raises(UserError, match=r"some\.pt .*dict\.\w\w\.txt"):
            load(other())
    else:
        assert load(other())


def test_a_part_of_a_model_needs_its_dictionary_alone(checkpoint):
    """Its other side may differ, as where an encoder is used for another target language."""

    class Part(FairseqEncoder):
        def load_state_dict(self, state, strict=True):
            return None

    load = checkpoint_utils.load_pretrained_component_from_model
    state = torch.load(checkpoint, weights_only=False)
    state["vocabulary"]["dictionaries"]["target"] = "0" * 64
    save_checkpoint(state, checkpoint)
    load(Part(dictionary()), str(checkpoint))
    with pytest.raises(UserError, match=r"some\.pt .*the source dictionary"):
        load(Part(other()), str(checkpoint))


def test_averages_and_releases_keep_the_fingerprints(checkpoint, tmp_path):
    state = torch.load(checkpoint, weights_only=False)
    average = average_checkpoints([checkpoint, checkpoint])
    assert average["vocabulary"] == state["vocabulary"] == for_inference(average)["vocabulary"]
    state["vocabulary"]["pieces"] = "1" * 64
    save_checkpoint(state, tmp_path / "another.pt")
    with pytest.raises(UserError, match=r"another\.pt and .*some\.pt"):
        average_checkpoints([checkpoint, tmp_path / "another.pt"])
