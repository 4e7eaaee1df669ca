"""Fingerprints of dictionaries and pieces: what changes them, where pieces are found, what is an error."""

from __future__ import annotations

import hashlib
import json

import pytest
from fairseq.data import Dictionary
from fairseq.data.dictionary import TruncatedDictionary

from user_dir.errors import UserError
from user_dir.fingerprints import fingerprints_of, pieces_file, recorded_in, require_equal, require_same


def dictionary(*words: str, counts: int = 1) -> Dictionary:
    made = Dictionary()
    for number, word in enumerate(words):
        made.add_symbol(word, n=1 + number * counts)
    return made


def of(words="a b c", pieces=None, counts=1, side="source"):
    return fingerprints_of({side: dictionary(*words.split(), counts=counts)}, {}, pieces)


def test_symbols_and_their_order_count_and_nothing_else():
    same, others = of(counts=7), [of("a c b"), of("a b"), of("a b c d"), of("a b C"), of("ab c")]
    assert same == of()
    digests = {each.dictionaries["source"] for each in [of(), *others]}
    assert len(digests) == 6
    expected = hashlib.sha256("\n".join(["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c"]).encode())
    assert of().dictionaries["source"] == expected.hexdigest()
    short = TruncatedDictionary(dictionary("a", "b", "c"), 6)
    assert fingerprints_of({"source": short}, {}, None).dictionaries == of("a b").dictionaries


def touch(path, content="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.mark.parametrize("name", ["spm.model", "vocab.txt", "bpecodes", "sentencepiece.bpe.model"])
def test_pieces_inside_a_folder(tmp_path, name):
    assert pieces_file(tmp_path) is None
    assert pieces_file(tmp_path / "not there") is None
    assert pieces_file(touch(tmp_path / name).parent) == tmp_path / name


@pytest.mark.parametrize("folder", ["bin", "pretraining", "bin-lm-en"])
@pytest.mark.parametrize("mark", ["bin/stamp.json", "corpus.yaml"])
def test_pieces_beside_the_folder_of_a_corpus(tmp_path, folder, mark):
    pieces = touch(tmp_path / "spm.model")
    assert pieces_file(tmp_path / folder) is None  # of something else, as far as one can tell
    touch(tmp_path / mark, "{}")
    assert pieces_file(tmp_path / folder) == pieces


def test_of_a_corpus_prepared_anew_with_other_pieces_those_are_taken(tmp_path):
    touch(tmp_path / "corpus.yaml")
    old, new = touch(tmp_path / "spm.model"), touch(tmp_path / "text" / "vocab.txt")
    assert pieces_file(tmp_path / "bin") == old
    stamp = {"inputs": {}, "outputs": {}, "report": {}}
    touch(tmp_path / "spm.json", json.dumps(stamp))
    assert pieces_file(tmp_path / "bin") == new
    touch(tmp_path / "spm.json", json.dumps({**stamp, "outputs": {"spm.model": 1}}))
    assert pieces_file(tmp_path / "bin") == old


def test_another_vocabulary_is_an_error_that_names_both(tmp_path):
    one, two = touch(tmp_path / "one.model", "1"), touch(tmp_path / "two.model", "2")
    state = {"vocabulary": of(pieces=one).recorded()}
    require_same(state, "some.pt", of(pieces=one, counts=3))
    require_same(state, "some.pt", of(pieces=None))
    require_same({}, "some.pt", of("d e f"))
    with pytest.raises(UserError, match=r"some\.pt .*two\.model") as caught:
        require_same(state, "some.pt", of(pieces=two))
    for content in (b"1", b"2"):
        assert hashlib.sha256(content).hexdigest()[:12] in str(caught.value)
    words = {"source": dictionary("a", "c", "b")}
    with pytest.raises(UserError, match=r"some\.pt .*dict\.de\.txt"):
        require_same(state, "some.pt", fingerprints_of(words, {"source": tmp_path / "dict.de.txt"}, one))


def test_of_one_language_pair_and_of_several():
    """Sides and languages have no name in common: a joined dictionary is found by its value."""
    state = {"vocabulary": of(side="source").recorded()}
    require_same(state, "some.pt", of(side="de"))
    with pytest.raises(UserError, match=r"some\.pt"):
        require_same(state, "some.pt", of("c b a", side="de"))


def test_checkpoints_are_compared_with_each_other(tmp_path):
    one, two = {"vocabulary": of().recorded()}, {"vocabulary": of("c b a").recorded()}
    for other in (one, {}):
        require_equal(one, "one.pt", other, "other.pt")
    with pytest.raises(UserError, match=r"one\.pt and two\.pt"):
        require_equal(one, "one.pt", two, "two.pt")


@pytest.mark.parametrize(
    "forged",
    [1, {}, {"dictionaries": []}, {"dictionaries": {"source": "0"}}, {"dictionaries": {}, "pieces": 3}],
)
def test_what_is_no_fingerprint_is_refused(forged):
    assert recorded_in({"vocabulary": {"dictionaries": {}, "pieces": None}}, "a.pt") is not None
    with pytest.raises(UserError, match=r"a\.pt"):
        recorded_in({"vocabulary": forged}, "a.pt")
