import pytest
import sacrebleu
from sacrebleu.dataset import DATASETS

from user_dir.corpora import load_corpus
from user_dir.metrics import make_bleu, make_ter
from user_dir.translation import scoring, text


def test_tokenized_bleu_uses_tokens_and_the_given_case():
    hypotheses, references = ["The dog sleeps , he said ."], ["the dog sleeps , he said ."]
    assert scoring.tokenized_bleu(hypotheses, references, True, "x")["tokenized_bleu"] == 100.0
    found = scoring.tokenized_bleu(hypotheses, references, False, "x")
    assert found["tokenized_bleu"] < 100 and "tok:none" in found["tokenized_bleu_signature"]
    assert text.moses_tokens(["He said: R&D isn't <it>."], "en") == ["He said : R & D isn 't < it > ."]


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
    bleu = make_bleu("en")
    assert (
        scoring.scores(["One & two.", "Three spaces.", "Four."], found, bleu, False, make_ter("en"))["bleu"]
        == 100.0
    )


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
    found = scoring.scores(hypotheses, [references], make_bleu("en"), False, make_ter("en"))
    assert found["bleu"] == round(sacrebleu.corpus_bleu(hypotheses, [references]).score, 2)
    assert found["chrf"] == round(sacrebleu.corpus_chrf(hypotheses, [references]).score, 2)
    assert "tok:13a" in found["bleu_signature"]
    ter = sacrebleu.metrics.TER(case_sensitive=True)
    assert found["ter"] == round(ter.corpus_score(hypotheses, [references]).score, 2)
    assert "case:mixed" in found["ter_signature"]


def test_changes_of_post_editing():
    """Edits by hand: a word replaced, inserted or deleted is one."""
    references = ["a b c d", "a b c d", "a b c d", "a b c d", "a b c d"]
    uncorrected = ["a b c d", "a x c d", "a b c d", "a x c d", "a x y d"]
    hypotheses = ["a  b c d", "a b c d", "a b c", "a c d", "a x c d"]
    found = scoring.changes(hypotheses, uncorrected, [references], make_ter("en"))
    assert found == {"left_alone": 1, "improved": 2, "worsened": 1, "no_effect": 1}
