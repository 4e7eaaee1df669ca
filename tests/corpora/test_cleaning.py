import pytest
from tiny import described

from user_dir.corpora.cleaning import EMPTY, Limits, clean, limits_of

PAIR = ("de", "en")


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (2, 2, None),
        (10, 15, None),  # a ratio of 1.5 is still allowed, as in Moses
        (15, 10, None),
        (1, 1, "a side had fewer than 2 words"),
        (21, 20, "a side had more than 20 words"),
        (20, 21, "a side had more than 20 words"),
        (10, 16, "one side had more than 1.5 times the words of the other"),
        (16, 10, "one side had more than 1.5 times the words of the other"),
        (0, 5, EMPTY),
    ],
)
def test_limits(left, right, reason):
    pair = "w " * left, "w " * right
    kept, dropped = clean([pair], PAIR, (Limits("words", 2, 20, 1.5),))
    assert dropped == ({reason: 1} if reason else {})
    assert kept == ([] if reason else [pair])


def test_each_pair_is_counted_once_and_order_is_kept():
    pairs = [("a", "b"), ("", "b"), ("a b c d", "a"), ("c", "d"), ("\u3000", "x"), ("a " * 9, "a")]
    kept, dropped = clean(pairs, PAIR, (Limits("words", max=5), Limits("words", ratio=2)))
    assert kept == [("a", "b"), ("c", "d")]
    assert dropped == {
        EMPTY: 2,
        "a side had more than 5 words": 1,
        "one side had more than 2 times the words of the other": 1,
    }


def test_moses_tokens_separate_punctuation_but_not_entities():
    """Six tokens, one word: Tom, &, Jerry, (, x, ) as split by sacremoses; its escapes are not tokens."""
    from sacremoses import MosesTokenizer

    text = "Tom&Jerry's(x),don't."
    number = len(MosesTokenizer("en").tokenize(text, escape=False))
    assert number > len(text.split())
    limits = (Limits("moses_tokens", max=number),)
    assert clean([(text, text)], ("en", "en"), limits)[0]
    assert not clean([(text, text)], ("en", "en"), (Limits("moses_tokens", max=number - 1),))[0]


def test_limits_are_read_by_unit(tmp_path):
    found = described(tmp_path, "clean: {words: {max: 9}, pieces: {min: 1, max: 250, ratio: 1.5}}\n")
    assert limits_of(found, pieces=False) == (Limits("words", max=9),)
    assert limits_of(found, pieces=True) == (Limits("pieces", 1, 250, 1.5),)
