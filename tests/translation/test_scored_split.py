"""Restoration and scoring of translations by the settings of a corpus."""

from __future__ import annotations

import pytest
import sacrebleu
from tiny_splits import described

from user_dir.errors import UserError
from user_dir.translation.scored_split import ScoredSplit

TOKENISED, BYTES, LOWER = "tokenised: true", "byte_fallback: true", "normalise: {every: [lower_case]}"
NATURAL = ["The café's dog, he said, sleeps (loudly).", "Who sees the ☃ now?", "Nobody: it melted, too."]
TOKENS = [
    "The café 's dog , he said , sleeps ( loudly ) .",
    "Who sees the ☃ now ?",
    "Nobody : it melted , too .",
]


def scored(folder, *settings: str) -> ScoredSplit:
    """The test split of a corpus with these settings and the references NATURAL."""
    corpus = described(folder, *settings)
    places = {"text": TOKENS if TOKENISED in settings else NATURAL, "text/reference": NATURAL}
    for place, lines in places.items():
        for language in corpus.languages:
            path = corpus.folder / place / f"test.{language}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return ScoredSplit(corpus, "test", ("de", "en"))


def bytewise(lines: list[str]) -> list[str]:
    """Replace every non-ASCII character by sentencepiece's byte pieces."""
    return [
        "".join(
            letter if letter.isascii() else "".join(f"<0x{byte:02X}>" for byte in letter.encode())
            for letter in line
        )
        for line in lines
    ]


@pytest.mark.parametrize(
    ("settings", "hypotheses"),
    [
        ([], NATURAL),
        ([TOKENISED], TOKENS),
        ([BYTES], bytewise(NATURAL)),
        ([LOWER], [line.lower() for line in NATURAL]),
        ([TOKENISED, BYTES, LOWER], bytewise([line.lower() for line in TOKENS])),
    ],
)
def test_a_perfect_translation_scores_100(tmp_path, settings, hypotheses):
    """With hypotheses in the form of the corpus: lower-cased, tokenised, or with byte pieces."""
    split = scored(tmp_path, *settings)
    assert split.bleu_of(hypotheses) == pytest.approx(100)
    assert split.bleu_of(hypotheses[:2]) == pytest.approx(100)
    assert ("case:lc" in str(split.bleu.get_signature())) == (LOWER in settings)
    scores = split.scores(split.lines(hypotheses))
    assert scores["bleu"] == scores["chrf"] == scores["tokenized_bleu"] == 100.0
    assert (scores["tokenized_bleu_tokens"] == "the release") == (TOKENISED in settings)
    if settings:
        assert scored(tmp_path / "plain").bleu_of(hypotheses) < 95, "what is not restored is not right"


def test_bleu_of_the_first_sentences_equals_sacrebleu(tmp_path):
    hypotheses = ["The café is a dog.", "Who sees the snow now?"]
    expected = sacrebleu.corpus_bleu(hypotheses, [NATURAL[:2]]).score
    assert scored(tmp_path).bleu_of(hypotheses) == expected


@pytest.mark.parametrize(
    ("language", "setting", "lines", "size"),
    [
        ("en", "", NATURAL, 16),
        ("ja", "", ["これは ペンです。", "そう"], 10),
        ("ja", TOKENISED, ["これ は ペン です 。", "そう"], 6),
    ],
)
def test_sizes_are_of_words_or_of_characters(tmp_path, language, setting, lines, size):
    corpus = described(tmp_path, setting, languages=f"de, {language}")
    path = corpus.reference("test", language)
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert ScoredSplit(corpus, "test", ("de", language)).size(lines) == size


def test_every_sentence_must_be_translated(tmp_path):
    with pytest.raises(UserError, match="2 translations for the 3 sentences of test"):
        scored(tmp_path).scores(NATURAL[:2])


@pytest.mark.parametrize("settings", [[], [TOKENISED]])
def test_sentences_left_out_are_not_scored(tmp_path, settings):
    split = scored(tmp_path, *settings)
    lines = TOKENS if settings else NATURAL
    scores = split.scores([lines[0], lines[2]], {1})
    assert scores["bleu"] == scores["chrf"] == scores["tokenized_bleu"] == 100.0
    assert split.scores([lines[0], lines[2]], {0})["bleu"] < 100
    with pytest.raises(UserError, match="3 translations for the 3 sentences"):
        split.scores(lines, {1})
