"""What a BERT's folder says of its tokenizer, against transformers' own tokenizer; contradictions."""

import json

import pytest
from triplets import bert_vocabulary

from user_dir.corpora.bert_tokenizer import files_of, read_tokenizer, read_vocabulary, symbol_of
from user_dir.corpora.wordpiece import WordPieces
from user_dir.errors import UserError

LETTERS = sorted(set("abcdefghijklmnopqrstuvwxyzÄäÖöÜüéABCDGHIĐ中国"))
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hund", "katze", "Hund", "##en"]
TOKENS += [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
SENTENCES = [
    "Der HUND sieht die Katzen",
    "Äpfel é e\u0301 Đ ß",
    "das 中国 isst",
    "GroßeHunden \x01 a\u200bb ☃",
]
SETTINGS = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"tokenize_chinese_chars": False},
]


@pytest.fixture(scope="module")
def bert_tokenizer(silent_transformers):
    """transformers' class."""
    from transformers import BertTokenizer

    return BertTokenizer


def saved(bert_tokenizer, folder, **settings):
    found = bert_tokenizer(vocab={token: row for row, token in enumerate(TOKENS)}, **settings)
    found.save_pretrained(folder)
    return found


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("settings", SETTINGS)
def test_pieces_are_those_of_transformers(bert_tokenizer, tmp_path, settings, old):
    """Of text without punctuation, where BERT would split; ``old``: a folder of vocab.txt and settings."""
    theirs = saved(bert_tokenizer, tmp_path, **settings)
    if old:
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    found = read_tokenizer(files_of(tmp_path))
    assert found.tokens == TOKENS
    written = tmp_path / "written.json"
    written.write_text(found.written(), encoding="utf-8")
    ours = WordPieces(written)
    expected = [[symbol_of(token) for token in theirs.tokenize(text)] for text in SENTENCES]
    assert ours.encode(SENTENCES) == expected
    assert ours.rules == found.rules


def test_without_settings_text_stays_as_it_is(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    found = read_tokenizer(files_of(tmp_path))
    assert found.rules is None
    assert WordPieces(tmp_path / "vocab.txt").encode(["Hund Ä"]) == [["▁Hund", "▁Ä"]]


def change(path, *keys, value):
    content = inner = json.loads(path.read_text())
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("file", "keys", "value", "message"),
    [
        ("tokenizer_config.json", ["do_lower_case"], False, "tokenizer_config.json: do_lower_case is False"),
        ("tokenizer_config.json", ["strip_accents"], False, "strip_accents is False"),
        ("tokenizer_config.json", ["tokenize_chinese_chars"], False, "tokenize_chinese_chars is False"),
        ("tokenizer_config.json", ["do_basic_tokenize"], False, "do_basic_tokenize is False"),
        ("tokenizer_config.json", ["tokenizer_class"], "RobertaTokenizer", "tokenizer_class is 'Roberta"),
        ("tokenizer_config.json", ["do_lower_case"], "yes", "do_lower_case is 'yes'"),
        ("tokenizer.json", ["normalizer", "type"], "NFC", "normalizer.type is 'NFC'"),
        ("tokenizer.json", ["normalizer"], None, "do_lower_case is True"),
        ("tokenizer.json", ["pre_tokenizer", "type"], "ByteLevel", "pre_tokenizer.type is 'ByteLevel'"),
        ("tokenizer.json", ["model", "type"], "BPE", "model.type is 'BPE'"),
        ("tokenizer.json", ["model", "continuing_subword_prefix"], "@@", "continuing_subword_prefix is '@@'"),
        ("tokenizer.json", ["model", "vocab", "hund"], 6, "no token has the number"),
        ("tokenizer.json", ["model", "vocab", "late"], 10**6, "no token has the number"),
        ("tokenizer.json", ["model", "vocab"], [1], "tokenizer.json.*vocab"),
        ("tokenizer.json", ["model", "vocab"], {"x": 0}, "no token has the number"),
    ],
)
def test_what_contradicts_or_is_unknown_is_refused_with_its_key(
    bert_tokenizer, tmp_path, file, keys, value, message
):
    saved(bert_tokenizer, tmp_path)
    read_tokenizer(files_of(tmp_path))
    change(tmp_path / file, *keys, value=value)
    with pytest.raises(UserError, match=message):
        read_tokenizer(files_of(tmp_path))


def test_vocabularies_that_differ_are_refused(bert_tokenizer, tmp_path):
    saved(bert_tokenizer, tmp_path)
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    read_tokenizer(files_of(tmp_path))
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in reversed(TOKENS)), encoding="utf-8")
    with pytest.raises(UserError, match="different tokens"):
        read_tokenizer(files_of(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tokens: tokens[1:], r"vocab.txt lacks \[PAD\]; it is not the vocabulary of a BERT"),
        (lambda tokens: [*tokens[:5], "", *tokens[5:]], r"vocab.txt, line 6 is blank"),
        (lambda tokens: [*tokens, ""], r"vocab.txt, line \d+ is blank"),
        (lambda tokens: [*tokens, "The"], r"vocab.txt, line \d+: 'The' means the same piece as line 9;"),
    ],
)
def test_other_vocabularies_are_refused(tmp_path, change, message):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in change(bert_vocabulary())))
    with pytest.raises(UserError, match=message):
        read_vocabulary(path)
