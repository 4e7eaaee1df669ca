import pytest

from user_dir.corpora import known_corpora, load_corpus
from user_dir.errors import UserError


def test_paths(data):
    corpus = load_corpus("tiny", data)
    assert corpus.name == "tiny"
    assert corpus.languages == ("de", "en")
    assert corpus.folder == data / "tiny"
    assert corpus.bin == data / "tiny" / "bin"
    assert corpus.spm_model == data / "tiny" / "spm.model"
    assert list(corpus.test_sets.items()) == [("big_test", "test"), ("odd_test", "test1")]
    assert corpus.text("train", "de") == data / "tiny" / "text" / "train.de"
    assert corpus.text("test1", "en") == corpus.text("odd_test", "en") == data / "tiny" / "text" / "test1.en"


def test_a_corpus_of_the_repository_may_live_in_another_data_folder(tmp_path):
    assert load_corpus("toy", tmp_path).folder == tmp_path / "toy"
    assert load_corpus("toy", tmp_path).description == load_corpus("toy").description


def test_an_unknown_corpus_lists_the_known_ones(data):
    assert {"tiny", "toy"} <= set(known_corpora(data))
    with pytest.raises(UserError, match=r"no corpus 'tinny'; choose from .*tiny, toy"):
        load_corpus("tinny", data)


def test_where_there_is_no_corpus_yet_the_file_to_write_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("user_dir.corpora.corpus.DATA", tmp_path)
    monkeypatch.setattr("user_dir.corpora.corpus.SHARED", tmp_path)
    with pytest.raises(UserError) as error:
        load_corpus("mine")
    assert str(tmp_path / "mine" / "corpus.yaml") in str(error.value)
    assert "choose" not in str(error.value)


@pytest.mark.parametrize("name", ["", ".", "..", "tiny/../tiny"])
def test_a_path_is_not_a_name(data, name):
    with pytest.raises(UserError, match="no corpus"):
        load_corpus(name, data)


def test_unknown_subset_and_language(data):
    corpus = load_corpus("tiny", data)
    with pytest.raises(UserError, match="no subset 'test2'; it has train, valid, test, test1"):
        corpus.text("test2", "de")
    with pytest.raises(UserError, match="no language 'fr'; it has de and en"):
        corpus.text("test", "fr")


def test_not_prepared(data):
    with pytest.raises(UserError, match=r"run: python scripts/prepare\.py tiny"):
        load_corpus("tiny", data).require_prepared()
