"""The table of languages, against Unicode's line breaking and what people know of languages."""

from __future__ import annotations

import unicodedata

import pytest
import regex

from user_dir.corpora.languages import UNSPACED_SCRIPTS, language, unspaced_script

# Codes as corpora have them → sacrebleu's tokenizer.
TOKENIZERS = {
    "13a": "de DE de-AT fra_Latn ger arb_Arab hin_Deva en_XX sr_Latn jav_Latn ja_Latn nan_Latn zh_Latn "
    "ur cs vi",
    "zh": "zh ZH zh_CN zh-TW zho_Hans zho_Hant zh_Hant_HK cmn cmn_Hans yue yue_Hant wuu lzh chi",
    "ja-mecab": "ja JA ja_JP jpn_Jpan jpn",
    "char": "th tha_Thai lo lao_Laoo km khm_Khmr my mya_Mymr bur shn_Mymr bo bod_Tibt dz dzo_Tibt ban_Bali "
    "jv_Java tib khb ii cjm_Cham xyz_Thai",
}


@pytest.mark.parametrize(("tokenizer", "codes"), TOKENIZERS.items())
def test_tokenizer_and_spaces(tokenizer, codes):
    for code in codes.split():
        assert language(code).tokenizer == tokenizer, code
        assert language(code).spaced == (tokenizer == "13a"), code


@pytest.mark.parametrize("installed", [False, True])
def test_korean_has_spaces_and_takes_mecab_if_it_is_there(monkeypatch, installed):
    monkeypatch.setattr("user_dir.corpora.languages.find_spec", lambda name: installed or None)
    for code in ("ko", "kor_Hang", "ko_KR"):
        assert language(code).spaced
        assert language(code).tokenizer == ("ko-mecab" if installed else "char")


@pytest.mark.parametrize("code", ["xx", "jp", "cn", "toki", "a", "", "_", "und"])
def test_nothing_is_known_of_what_is_no_code(code):
    unknown = language(code)
    assert (unknown.script, unknown.spaced, unknown.tokenizer) == (None, True, "13a")


def test_scripts_without_spaces_are_those_of_line_breaking():
    """Letters after which Unicode lets a line end without a space, but of extinct scripts, which lie beyond.

    Tibetan has a mark for it instead.
    """
    breaks = r"\p{lb=SA}\p{lb=ID}\p{lb=CJ}\p{lb=AK}\p{lb=AP}\p{lb=AS}"
    spaced = r"\p{Latin}\p{Hangul}\p{Common}\p{Inherited}"
    letters = regex.findall(f"(?V1)[\\p{{L}}&&[{breaks}]--[{spaced}]]", "".join(map(chr, range(0xD800))))
    assert len(letters) > 20_000
    ours = {script: regex.compile(rf"\p{{Script={script}}}") for script in UNSPACED_SCRIPTS}
    matched = set()
    for letter in letters:
        scripts = [script for script, pattern in ours.items() if pattern.match(letter)]
        assert scripts, unicodedata.name(letter, hex(ord(letter)))
        matched.update(scripts)
    assert matched == {*UNSPACED_SCRIPTS} - {"Tibt"}


def test_text_without_spaces():
    assert unspaced_script(["狗看见猫。", "ok"]) == "Hani"
    assert unspaced_script(["猫がすきです", "ネコ"]) == "Hira"
    assert unspaced_script(["ຂ້ອຍ ຮັກ ເຈົ້າ"]) == "Laoo"
    for text in (["The word 猫 means cat.", ""], [], ["1 + 1 = 2"], ["나는 고양이를 본다", "हम जाते हैं"]):
        assert unspaced_script(text) is None
