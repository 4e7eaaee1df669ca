"""Text restored and scored: detokenisation, sacrebleu's metrics by language, references, whole splits."""

from __future__ import annotations

import math
from importlib.metadata import version

import pytest
import sacrebleu
from fairseq.data.data_utils import post_process
from tiny_splits import described

from user_dir.errors import UserError
from user_dir.translation import scoring
from user_dir.translation.scoring import (
    ScoredSplit,
    bleu_settings,
    detokenizer,
    join_pieces,
    make_bleu,
    make_ter,
)

LOWER = "normalise: {every: [lower_case]}"
NATURAL = ["The café's dog, he said, sleeps (loudly).", "Who sees the ☃ now?", "Nobody: it melted, too."]


def tokenizer(metric) -> str:
    """What the signature of a metric names, after a score."""
    return str(metric.get_signature()).partition("tok:")[2].partition("|")[0]


@pytest.mark.parametrize("line", ["▁Der ▁Hund s chl äft .", "", " ▁ a  b▁ ", "<unk> ▁▁ <s>\t▁x"])
def test_pieces_are_joined_as_by_fairseq(line):
    assert join_pieces(line) == post_process(line, "sentencepiece")


@pytest.mark.parametrize(
    ("language", "tokens", "text"),
    [
        ("en", "The dog 's bone , said he ( loudly ) .", "The dog's bone, said he (loudly)."),
        ("fra_Latn", "l' eau coule : oui !", "l'eau coule : oui !"),
        ("zh_TW", "我 喜歡 GPU 。", "我喜歡GPU。"),
        ("tha_Thai", "ฉัน รัก แมว", "ฉันรักแมว"),
        ("ja", "Jose\u0301 Mourinho 監督", "Jose\u0301 Mourinho監督"),
        ("ja", "José Mourinho と Điện Biên Phủ と 5 × 6", "José MourinhoとĐiện Biên Phủと5×6"),
    ],
)
def test_detokenised(language, tokens, text):
    assert detokenizer(language)(tokens) == text


def test_japanese_is_split_into_words():
    """Two sentences without spaces, of 12 words, that differ in one."""
    bleu = make_bleu("ja")
    references = ["猫は魚が好きです。", "今日は晴れです。"]
    score = bleu.corpus_score(["猫は魚が好きです。", "今日は雨です。"], [references])
    assert score.counts[0] == 11 and score.totals[0] == 12
    assert bleu_settings(str(bleu.get_signature()))[0] == "ja-mecab"  # the signature has its version, too


@pytest.mark.parametrize(("name", "lower_case"), [("none", False), ("zh", True), ("13a", False)])
def test_a_signature_names_its_settings(name, lower_case):
    bleu = make_bleu("en", name, lower_case)
    bleu.corpus_score(["a"], [["a"]])
    assert bleu_settings(str(bleu.get_signature())) == (name, lower_case)
    with pytest.raises(UserError, match="no tokenizer 'foo'"):
        make_bleu("en", "foo")


@pytest.mark.parametrize(
    ("codes", "text", "expected"),
    [
        ("th tha_Thai", "ฉันรักแมวดำ", "char"),
        ("km khm_Khmr", "ខ្ញុំស្រលាញ់ឆ្មា", "char"),
        ("jv_Java", "ꦲꦏꦸꦠꦽꦱ꧀ꦤ", "char"),
        ("zh zh-TW cmn zho_Hant", "我喜欢黑色的小猫", "zh"),
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


def test_scores_equal_sacrebleu():
    hypotheses, references = ["The dog sleeps."], ["The dog is asleep."]
    metrics = {"bleu": make_bleu("en"), "chrf": sacrebleu.metrics.CHRF(), "ter": make_ter("en")}
    scores = scoring.scores(metrics, hypotheses, [references])
    assert scores["bleu"] == round(sacrebleu.corpus_bleu(hypotheses, [references]).score, 2)
    assert scores["chrf"] == round(sacrebleu.corpus_chrf(hypotheses, [references]).score, 2)
    ter = sacrebleu.metrics.TER(case_sensitive=True)
    assert scores["ter"] == round(ter.corpus_score(hypotheses, [references]).score, 2)
    assert "tok:13a" in scores["bleu_signature"] and "case:mixed" in scores["ter_signature"]


def scored(folder, *settings: str) -> ScoredSplit:
    """The test split of a corpus with these settings and the references NATURAL."""
    corpus = described(folder, *settings)
    (corpus.folder / "text").mkdir()
    for language in corpus.languages:
        path = corpus.folder / "text" / f"test.{language}"
        path.write_text("".join(line + "\n" for line in NATURAL), encoding="utf-8")
    return ScoredSplit(corpus, "test", ("de", "en"))


def bleu_of(split: ScoredSplit, hypotheses: list[str]) -> float:
    """BLEU of hypotheses with joined pieces for the first sentences."""
    references = [lines[: len(hypotheses)] for lines in split.references]
    return split.bleu.corpus_score(split.natural(split.lines(hypotheses)), references).score


@pytest.mark.parametrize(
    ("settings", "hypotheses"),
    [
        ([], NATURAL),
        ([LOWER], [line.lower() for line in NATURAL]),
    ],
)
def test_a_perfect_translation_scores_100(tmp_path, settings, hypotheses):
    """With hypotheses in the form of the corpus, such as lower-cased; also of some sentences alone."""
    split = scored(tmp_path, *settings)
    assert bleu_of(split, hypotheses) == bleu_of(split, hypotheses[:2]) == pytest.approx(100)
    assert ("case:lc" in str(split.bleu.get_signature())) == (LOWER in settings)
    for left_out in ([], [1]):
        split.left_out = left_out
        kept = [line for number, line in enumerate(split.lines(hypotheses)) if number not in left_out]
        scores = split.scores(kept)
        assert scores["bleu"] == scores["chrf"] == scores["tokenized_bleu"] == 100.0
        lines = split.with_left_out(kept).split("\n")
        assert lines == ["" if number in left_out else line for number, line in enumerate([*hypotheses, ""])]
    split.left_out = [0]
    assert split.scores(kept)["bleu"] < 100, "others are left out"
    assert scores["tokenized_bleu_tokens"] == f"Moses (sacremoses {version('sacremoses')})"
    if settings:
        assert bleu_of(scored(tmp_path / "plain"), hypotheses) < 95, "what is not restored is not right"
