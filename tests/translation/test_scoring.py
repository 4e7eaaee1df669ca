import pytest
import sacrebleu
from sacrebleu.dataset import DATASETS

from user_dir.corpora import load_corpus
from user_dir.errors import UserError
from user_dir.translation import scoring
from user_dir.translation import text as restoring


def test_tokenized_bleu_uses_tokens_and_the_given_case():
    hypotheses, references = ["The dog sleeps , he said ."], ["the dog sleeps , he said ."]
    assert scoring.tokenized_bleu(hypotheses, references, True, "x")["tokenized_bleu"] == 100.0
    found = scoring.tokenized_bleu(hypotheses, references, False, "x")
    assert found["tokenized_bleu"] < 100 and "tok:none" in found["tokenized_bleu_signature"]
    assert restoring.moses_tokens(["He said: R&D isn't <it>."], "en") == ["He said : R & D isn 't < it > ."]


def test_an_unknown_tokenizer_of_sacrebleu():
    with pytest.raises(UserError, match="sacrebleu has no tokenizer 'foo'; choose from "):
        scoring.make_bleu("en", "foo")


def test_japanese_is_split_into_words():
    """Two sentences without spaces, of 12 words, that differ in one."""
    bleu = scoring.make_bleu("ja")
    references = ["猫は魚が好きです。", "今日は晴れです。"]
    found = bleu.corpus_score(["猫は魚が好きです。", "今日は雨です。"], [references])
    assert "tok:ja-mecab" in str(bleu.get_signature())
    assert found.counts[0] == 11 and found.totals[0] == 12
    assert (
        scoring.bleu_settings(str(bleu.get_signature()))[0] == "ja-mecab"
    )  # the signature has its version, too


@pytest.mark.parametrize("lower_case", [False, True])
@pytest.mark.parametrize("tokenizer", ["none", "zh", "13a", "intl", "char"])
def test_a_signature_names_its_settings(tokenizer, lower_case):
    bleu = scoring.make_bleu("en", tokenizer, lower_case)
    bleu.corpus_score(["a"], [["a"]])
    assert scoring.bleu_settings(str(bleu.get_signature())) == (tokenizer, lower_case)


def test_the_settings_of_other_signatures():
    assert scoring.bleu_settings("case:lc|tok:spBLEU-1K") == ("spBLEU-1K", True)
    assert scoring.bleu_settings("tok:foo-1.0") == ("foo-1.0", False)
    assert scoring.bleu_settings("case:mixed") == (None, False)


@pytest.fixture
def newstest(tmp_path, monkeypatch):
    """wmt16-ro-en with three sentences, and a function that installs sacrebleu's newstest2016."""
    corpus = load_corpus("wmt16-ro-en", tmp_path / "data")
    texts = {
        "ro": ["Una & două.", "Trei  spații.", "Patru."],
        "en": ["One & two.", "Three  spaces.", "Four."],
    }
    for language, rows in texts.items():
        corpus.text("newstest2016", language).parent.mkdir(parents=True, exist_ok=True)
        corpus.text("newstest2016", language).write_text(
            "".join(row + "\n" for row in rows), encoding="utf-8"
        )
    dataset = DATASETS["wmt16"]
    monkeypatch.setattr(dataset, "_outdir", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr(dataset, "maybe_download", lambda: pytest.fail("would download"))
    (tmp_path / "sacrebleu").mkdir()

    def install(source, reference):
        for field in dataset.fieldnames("ro-en"):
            rows = {"src": source, "ref": reference}.get(field, ["x"] * len(source))
            path = tmp_path / "sacrebleu" / f"wmt16.ro-en.{field}"
            path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")

    return corpus, install


SOURCE = [
    "Una &amp; două.",
    "Trei spații.",
    "Patru.",
]  # as in sacrebleu: entities are kept, spaces are joined


def test_references_of_sacrebleu_are_used_if_installed(newstest):
    corpus, install = newstest
    assert scoring.sacrebleu_references(corpus, "newstest2016", "ro", "en") is None
    install(SOURCE, ["One &amp; two.", "Three spaces.", "Four."])
    found = scoring.sacrebleu_references(corpus, "newstest2016", "ro", "en")
    assert found == [["One &amp; two.", "Three spaces.", "Four."]]
    bleu = scoring.make_bleu("en")
    assert scoring.scores(["One & two.", "Three spaces.", "Four."], found, bleu, False)["bleu"] == 100.0


def test_references_of_other_sentences_are_not_used(newstest, caplog):
    corpus, install = newstest
    install(SOURCE[::-1], ["Four.", "Three spaces.", "One &amp; two."])
    assert scoring.sacrebleu_references(corpus, "newstest2016", "ro", "en") is None
    assert "wmt16 ro-en has different sentences" in caplog.text


def test_sacrebleu_has_every_test_set_named_in_the_descriptions():
    for name in ("iwslt17-de-en", "wmt16-ro-en", "wmt14-en-de"):
        corpus = load_corpus(name)
        assert corpus.description.sacrebleu
        for dataset in corpus.description.sacrebleu.values():
            assert "-".join(corpus.languages) in DATASETS[dataset].langpairs


def test_scores_equal_sacrebleu():
    hypotheses, references = ["The dog sleeps."], ["The dog is asleep."]
    found = scoring.scores(hypotheses, [references], scoring.make_bleu("en"), False)
    assert found["bleu"] == round(sacrebleu.corpus_bleu(hypotheses, [references]).score, 2)
    assert found["chrf"] == round(sacrebleu.corpus_chrf(hypotheses, [references]).score, 2)
    assert "tok:13a" in found["bleu_signature"]
    ter = sacrebleu.metrics.TER(case_sensitive=True)
    assert found["ter"] == round(ter.corpus_score(hypotheses, [references]).score, 2)
    assert "case:mixed" in found["ter_signature"]


def test_ter_counts_case_unless_lower_cased_and_characters_where_there_are_no_spaces():
    assert scoring.make_ter("en").corpus_score(["a b"], [["A b"]]).score == 50
    assert scoring.make_ter("en", lower_case=True).corpus_score(["a b"], [["A b"]]).score == 0
    assert scoring.make_ter("ja").corpus_score(["猫が見る"], [["犬が見る"]]).score == 25


def test_changes_of_post_editing():
    """Edits by hand: a word replaced, inserted or deleted is one."""
    references = ["a b c d", "a b c d", "a b c d", "a b c d", "a b c d"]
    uncorrected = ["a b c d", "a x c d", "a b c d", "a x c d", "a x y d"]
    hypotheses = ["a  b c d", "a b c d", "a b c", "a c d", "a x c d"]
    found = scoring.changes(hypotheses, uncorrected, [references], scoring.make_ter("en"))
    assert found == {"left_alone": 1, "improved": 2, "worsened": 1, "no_effect": 1}
