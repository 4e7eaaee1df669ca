"""Our dictionary against fairseq's, on dictionaries as they are and as they might be."""

from __future__ import annotations

import pytest
from fairseq.data import Dictionary as FairseqDictionary

from user_dir.checkout import DATA
from user_dir.corpora.dictionary import Dictionary
from user_dir.corpora.segment import load_pieces
from user_dir.releases.archive import unpack

ODD = {
    "plain": "▁a 3\nb 2\nmadeupword0000 0\n",
    "empty": "",
    "no end of the last line": "▁a 3\nb 2",
    "line ends of other systems": "▁a 3\r\nb 2\rc 1\n",
    "spaces in a symbol": "a b 3\nc  2\n 1\n",
    "white space around": "\ta 3 \t\nb\u00a0 2\u2003\n",
    "a line separator within": "a\u2028b 1\nc\x85d 2\n\x1ce 3\n",
    "odd numbers": "a 1_000\nb -1\nc ٣\nd +5\n",
    "a number as symbol": "1 2\n3 4\n",
    "overwritten": "a 1\nb 2\na 3 #fairseq:overwrite\n<s> 1 #fairseq:overwrite\n<unk> 2 #fairseq:overwrite\n",
    "looks like a flag": "#fairseq:overwrite 1\n",
}
LINES = ["", "▁a b", "a c unknown <s> </s> <pad> <unk>", "  b\ta\u2028b \u00a0", "madeupword0000 1 3 \x1ce"]
WRONG = {
    "no count": "word\n",
    "an empty line": "a 1\n\nb 2\n",
    "no number": "word many\n",
    "half a number": "word 1.5\n",
    "a flag alone": "word #fairseq:overwrite\n",
    "a word twice": "a 1\na 2\n",
    "one of its own": "</s> 1\n",
}


def assert_same(path, lines: list[str]) -> None:
    ours, theirs = Dictionary.load(path), FairseqDictionary.load(str(path))
    assert ours.symbols == theirs.symbols and ours.indices == theirs.indices
    assert (ours.bos(), ours.pad(), ours.eos(), ours.unk()) == (
        *(theirs.bos(), theirs.pad(), theirs.eos(), theirs.unk()),
    )
    numbers = [-1, 0, len(theirs) - 1, len(theirs), len(theirs) + 7]
    assert [ours[n] for n in numbers] == [theirs[n] for n in numbers] and len(ours) == len(theirs)
    for line in lines:
        encoded = theirs.encode_line(line, add_if_not_exist=False)
        assert ours.encode(line) == encoded.tolist()
        assert ours.decode(encoded.tolist()) == theirs.string(encoded)
    everything = list(range(len(theirs)))
    assert ours.decode(everything) == theirs.string(everything)


@pytest.mark.parametrize("case", ODD)
def test_numbers_are_those_of_fairseq(case, tmp_path):
    path = tmp_path / "dict.txt"
    path.write_bytes(ODD[case].encode())
    assert_same(path, LINES)


def test_numbers_of_a_real_vocabulary(tmp_path):
    unpack(DATA / "models" / "de-en.tar", tmp_path)
    processor = load_pieces(tmp_path / "spm.model")
    text = ["Der Hund schläft.", "ein 🙂 Satz </s> <unk>", "Straße\u00a0№ 5"]
    assert_same(
        tmp_path / "bin" / "dict.de.txt", [" ".join(processor.encode(each, out_type=str)) for each in text]
    )


@pytest.mark.parametrize("case", WRONG)
def test_what_fairseq_refuses_is_refused(case, tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text(WRONG[case])
    with pytest.raises((ValueError, RuntimeError)):
        FairseqDictionary.load(str(path))
    with pytest.raises(ValueError):
        Dictionary.load(path)
