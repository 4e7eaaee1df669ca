"""sacrebleu's metrics by language, against scores computed by hand."""

from __future__ import annotations

import logging
import math
import sys
import types

import pytest

from user_dir import metrics
from user_dir.errors import UserError
from user_dir.metrics import bleu_settings, make_bleu, make_ter


def test_an_unknown_tokenizer_of_sacrebleu():
    with pytest.raises(UserError, match="sacrebleu has no tokenizer 'foo'; choose from "):
        make_bleu("en", "foo")


def test_japanese_is_split_into_words():
    """Two sentences without spaces, of 12 words, that differ in one."""
    bleu = make_bleu("ja")
    references = ["猫は魚が好きです。", "今日は晴れです。"]
    found = bleu.corpus_score(["猫は魚が好きです。", "今日は雨です。"], [references])
    assert "tok:ja-mecab" in str(bleu.get_signature())
    assert found.counts[0] == 11 and found.totals[0] == 12
    assert bleu_settings(str(bleu.get_signature()))[0] == "ja-mecab"  # the signature has its version, too


@pytest.mark.parametrize("lower_case", [False, True])
@pytest.mark.parametrize("tokenizer", ["none", "zh", "13a", "intl", "char"])
def test_a_signature_names_its_settings(tokenizer, lower_case):
    bleu = make_bleu("en", tokenizer, lower_case)
    bleu.corpus_score(["a"], [["a"]])
    assert bleu_settings(str(bleu.get_signature())) == (tokenizer, lower_case)


def test_the_settings_of_other_signatures():
    assert bleu_settings("case:lc|tok:spBLEU-1K") == ("spBLEU-1K", True)
    assert bleu_settings("tok:foo-1.0") == ("foo-1.0", False)
    assert bleu_settings("case:mixed") == (None, False)


def tokenizer(metric) -> str:
    """What the signature of a metric names, after a score."""
    return str(metric.get_signature()).partition("tok:")[2].partition("|")[0]


@pytest.mark.parametrize(
    ("codes", "text", "expected"),
    [
        ("th tha_Thai", "ฉันรักแมวดำ", "char"),
        ("lo lao_Laoo", "ຂ້ອຍຮັກແມວ", "char"),
        ("km khm_Khmr", "ខ្ញុំស្រលាញ់ឆ្មា", "char"),
        ("my mya_Mymr", "ကျွန်တော်ကြောင်ကို", "char"),
        ("bo dzo_Tibt", "ངས་ཞི་མི་ལ་དགའ", "char"),
        ("jv_Java", "ꦲꦏꦸꦠꦽꦱ꧀ꦤ", "char"),
        ("zh zh_CN zh-TW cmn yue zho_Hant", "我喜欢黑色的小猫", "zh"),
    ],
)
def test_one_character_less_costs_one_character(codes, text, expected):
    """All n-grams of the translation are right: BLEU is the brevity penalty, and TER one edit."""
    for code in codes.split():
        bleu, ter = make_bleu(code), make_ter(code)
        score = bleu.corpus_score([text[:-1]], [[text]]).score
        assert score == pytest.approx(100 * math.exp(1 - len(text) / (len(text) - 1)))
        assert ter.corpus_score([text[:-1]], [[text]]).score == pytest.approx(100 / len(text))
        assert (tokenizer(bleu), tokenizer(ter)) == (expected, "tercom-char")


def test_ter_counts_case_unless_lower_cased_and_words_where_there_are_spaces():
    assert make_ter("en").corpus_score(["a b"], [["A b"]]).score == 50
    assert make_ter("en", lower_case=True).corpus_score(["a b"], [["A b"]]).score == 0
    for code in ("en", "ko", "ja_Latn", "xx"):
        ter = make_ter(code)
        assert ter.corpus_score(["ab cd"], [["ab ce"]]).score == 50
        assert tokenizer(ter) == "tercom"


def test_ter_of_mixed_text_keeps_latin_words():
    """Tokens of the reference: 私 は GPU を 2.5 個 買 う 。"""
    for code in ("ja", "jpn_Jpan", "ja_JP", "JA"):
        ter = make_ter(code)
        assert ter.corpus_score(["私はCPUを2.5個買う。"], [["私はGPUを2.5個買う。"]]).score == pytest.approx(
            100 / 9
        )
        assert ter.corpus_score(["ネコ𠀀"], [["イコ𠀀"]]).score == pytest.approx(100 / 3)


def test_text_is_believed_where_the_code_says_nothing(caplog):
    for warning in (metrics._warn_of_code, metrics._warn_of_spaces):  # given once per process
        warning.cache_clear()
    caplog.set_level(logging.WARNING, logger=metrics.logger.name)
    thai, english = ["ฉันรักแมว", "หมาวิ่ง"], ["I love cats.", "The dog runs."]
    assert tokenizer_of(make_bleu("xx", lines=thai)) == "char"
    assert "xx" in caplog.text and "Thai" in caplog.text
    caplog.clear()
    assert tokenizer_of(make_bleu("cn", lines=["我喜欢猫"])) == "zh"
    assert tokenizer_of(make_bleu("en", lines=thai)) == "char"
    assert "'en'" in caplog.text
    caplog.clear()
    assert tokenizer_of(make_bleu("xy", lines=english)) == "13a"
    assert "xy" in caplog.text
    caplog.clear()
    assert tokenizer_of(make_bleu("en", lines=english)) == tokenizer_of(make_bleu("")) == "13a"
    assert tokenizer_of(make_bleu("th", lines=english)) == "char"
    assert not caplog.text
    assert tokenizer_of(make_bleu("th", "13a")) == "13a"
    assert "13a" in caplog.text
    assert make_ter("xx", lines=thai).tokenizer.signature() == "tercom-char"


def tokenizer_of(bleu) -> str:
    return bleu.tokenizer.signature()


@pytest.mark.parametrize("name", ["spm", "flores101", "flores200", "spBLEU-1K"])
def test_nothing_is_downloaded(tmp_path, monkeypatch, name):
    monkeypatch.setattr(metrics, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(
        "sacrebleu.tokenizers.tokenizer_spm.download_file", lambda *_: pytest.fail("would download")
    )
    with pytest.raises(UserError, match=name) as error:
        make_bleu("de", name)
    assert str(tmp_path / "models") in str(error.value)


def test_a_model_of_flores_is_used_if_it_is_there(tmp_path, monkeypatch):
    path = tmp_path / "models" / "flores200sacrebleuspm"
    path.parent.mkdir()
    path.write_bytes(b"no model")
    for module in (metrics, sys.modules["sacrebleu.tokenizers.tokenizer_spm"]):
        monkeypatch.setattr(module, "SACREBLEU_DIR", str(tmp_path))
    with pytest.raises(UserError, match="flores200"):
        make_bleu("de", "flores200")
    pieces = types.SimpleNamespace(Load=lambda _: None, EncodeAsPieces=list)
    monkeypatch.setattr("sentencepiece.SentencePieceProcessor", lambda: pieces)
    assert tokenizer_of(make_bleu("de", "flores200")) == "flores200"
